package events

import (
	"maps"
	"slices"

	"muster/internal/wire"
)

// AlarmWebhookFailed means that a webhook's endpoint accepts no events.
const AlarmWebhookFailed wire.Code = "webhook_failed"

// AlarmBrokersMisconfigured means that external brokers use other keys than this provisioner.
const AlarmBrokersMisconfigured wire.Code = "brokers_misconfigured"

// AlarmRecovery means that the store is in recovery.
const AlarmRecovery wire.Code = "in_recovery"

// AlarmEndsSoon means that an authority, a signer, a certificate or a token in use ends soon. Its cause has a line for
// each.
const AlarmEndsSoon wire.Code = "ends_soon"

// AlarmEntryUnread means that this version cannot read an entry in the store.
const AlarmEntryUnread wire.Code = "entry_unread"

// AlarmNodesFaulty means that connected nodes report what keeps them from renewing.
const AlarmNodesFaulty wire.Code = "nodes_faulty"

// AlarmSiteQuiet means that most nodes of a site have lost their connection.
const AlarmSiteQuiet wire.Code = "site_quiet"

// AlarmPendingFull means that nodes wait for an approval without being on the pending list.
const AlarmPendingFull wire.Code = "pending_full"

// AlarmNotBack means that Choria servers have their configuration and did not come back to their fleet.
const AlarmNotBack wire.Code = "not_back"

// AlarmContested means that two machines showed the name of a Choria server that was to be provisioned again.
const AlarmContested wire.Code = "contested"

// AlarmCertificatesStuck means that nodes report service certificates that need a person.
const AlarmCertificatesStuck wire.Code = "certificates_stuck"

// AlarmCertificatesEnd means that service certificates are in the last tenth of their life, or ended within a day.
const AlarmCertificatesEnd wire.Code = "certificates_end"

// AlarmCodes are the codes of all alarms, as in docs/runbook.md.
var AlarmCodes = []wire.Code{
	wire.CodeStorageLow, wire.CodeStoreUnavailable, wire.CodeRevocationsUnknown, wire.CodeClockBehind,
	AlarmClockDiffers,
	wire.CodeAuthorityExpired, wire.CodePolicyFailed, AlarmPolicyRefused, AlarmAllowsAll, AlarmWebhookFailed,
	AlarmBrokersMisconfigured, AlarmEndsSoon, AlarmEntryUnread, AlarmRecovery, AlarmNodesFaulty, AlarmPendingFull,
	AlarmNotBack, AlarmContested, AlarmCertificatesStuck, AlarmCertificatesEnd, AlarmSiteQuiet,
	wire.CodePaused,
}

var alarmRemedies = map[wire.Code]string{
	AlarmClockDiffers: "set the clock of the provisioner's machine or of the NATS servers",
	AlarmPolicyRefused: "correct the policy's files or restore the previous ones; `muster policy test` shows " +
		"the errors",
	AlarmAllowsAll: "run `muster allow remove '*'`; until then any token enrolls any free name",
	AlarmWebhookFailed: "`muster webhook list` shows the endpoint's answer, `muster webhook test` sends a " +
		"test event",
	AlarmBrokersMisconfigured: "give all provisioners the same files in `cluster`, and all servers the " +
		"`auth_callout` that `muster broker config` prints",
	AlarmEndsSoon: "replace what ends soon; each line says how",
	AlarmEntryUnread: "give the order again with this version of muster, or run the version that wrote the " +
		"entry",
	AlarmNodesFaulty: "`muster node list --faulty --sort expires -o wide` shows nodes and causes; " +
		"`muster-server doctor` on the machine shows what to do",
	AlarmContested: "find the other machine by the addresses in the node's history; it has the provisioning token: " +
		"sign another and revoke this one; then grant the name to the key of the right machine",
	AlarmNotBack: "look at the log of each server: its certificate or its settings do not let it into the fleet; " +
		"correct the policy before more servers get the same",
	AlarmCertificatesStuck: "`muster certificate list --stuck` shows nodes and causes; `muster-server certificate " +
		"list` on the machine shows what to do",
	AlarmCertificatesEnd: "`muster certificate list --expiring 1d` shows them: the node is away, is refused, or its " +
		"agent cannot save them; revoke those that no service needs",
	AlarmSiteQuiet: "look at network, power and broker of the site; `muster node list --connected no --site SITE` " +
		"shows the nodes",
	AlarmPendingFull: "`muster node pending --by-source` shows what fills the list, `muster node forget` makes room; " +
		"sign another token and revoke one that was stolen",
	AlarmRecovery: "run `muster recovery end` once the fleet is back; approve names without a certificate " +
		"by key; `muster token unfreeze` sets the uses that a limited token has left",
}

// Codes returns all codes in events: those of refusals and of alarms.
func Codes() []wire.Code {
	all := slices.Sorted(maps.Keys(wire.Codes))
	for _, c := range AlarmCodes {
		if !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	return all
}

// AlarmRemedy returns what an operator can do about an alarm.
func AlarmRemedy(code wire.Code) string {
	if remedy, ok := alarmRemedies[code]; ok {
		return remedy
	}
	return wire.MeaningOf(code).Remedy
}
