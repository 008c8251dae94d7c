package main

import "muster/internal/cli"

// topics are the pages of "muster help TOPIC".
var topics = []cli.Topic{
	{Name: "filters", Text: `Filters choose nodes. All filters that are given must match.

  --site ams1                  at this site
  --state enrolled             in this state; may be repeated
  --prefix web                 the name begins like this
  --match 'web*.example.net'   the name matches, label by label
  --fact os.name=Debian        with this fact; NAME= is for nodes without NAME
  --token-id ID                used this token
  --policy DIGEST              admitted by this policy
  --expires-before 7d          the certificate ends within seven days
  --unseen 30d                 not seen for thirty days
  --connected no --for 10m     not connected to a broker for ten minutes
  --address 192.0.2.0/24       pending nodes that ask from these addresses

'muster node list' and 'muster node pending' show the nodes that match. A verb that
changes nodes takes names, filters, or --all for every node to which it applies.
It shows the nodes and asks, unless --yes. --dry-run only shows them. With --state
unset, such a verb leaves revoked and retired nodes alone.

Facts come from the node. The provisioner keeps those that fleet.facts in
provisioner.yaml names.
`},
	{Name: "output", Text: `Standard output has the result of a command and nothing else. Remarks, questions
and progress go to standard error.

  -o table   columns for people, with ages and local time (the default)
  -o wide    the same with more columns
  -o json    one JSON value, with exact times (RFC 3339)
  -o jsonl   one JSON object a line
  -o csv     a header and all wide columns
  -o name    one name a line, for pipes

Lists have all six forms, other commands table and json. --utc shows times of
tables in UTC. Colors appear on a terminal only, unless NO_COLOR is set.
`},
	{Name: "spans", Text: `A span of time is written with units: 90s, 30m, 12h, 30d, 2w, 1M, 1y, or 1d12h.
A month is 30 days and a year 365. M is months, m is minutes.

A time is written as in RFC 3339: 2027-01-31T12:00:00Z.

Flags that take SPAN-OR-TIME count a span from now: --expires 2h is in two hours,
--since 12h is twelve hours ago. provisioner.yaml, server.conf and policies take
the same spans.
`},
	{Name: "environment", Text: `  MUSTER_CONFIG        stands for --config of the provisioner's commands
  MUSTER_URL           stands for --url; --config on the command line wins
  MUSTER_LOGIN         stands for --login; several files, one a line
  MUSTER_PASSPHRASE    passphrase of the key that 'muster jwt' and 'muster
                       operator token' sign with
  NO_COLOR             no colors on a terminal
  TMPDIR               where demo and bench write, if not /tmp

--login takes what an operator shows over HTTPS: the file that 'muster operator add'
writes, or a token of 'muster operator token' with --login roots.pem for the
installation's root certificates. Without either, the session of 'muster login' at
the same --url is used.

A passphrase comes from --passphrase-file. Without it, the provisioner's commands
take it from keys.passphrase_file in provisioner.yaml, from the systemd credential
muster-passphrase, or from the terminal.
`},
	{Name: "exit-codes", Text: `  0    the command did what was asked
  1    it failed; standard error says why
  2    the command line is wrong, and nothing was done
  78   a service failed, and starting it again does not help: its configuration is
       wrong or its store is damaged. systemd units of 'muster provisioner init'
       do not restart it then.

Some commands answer with their status as well: 'muster status --check' is 1 if
something needs an operator, 'muster policy replay' is 1 if a decision changes,
'muster server doctor' is 1 if a check fails.
`},
}
