package broker

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// checkAccounts warns of servers whose accounts are from before what nodes say crossed
// between them as services: there a node of the fleet chooses where in [AccountMuster] an
// answer goes, to a record of another node's say. Nothing that a connection in that account
// sees tells the one from the other, so servers are asked what they import. One with a file from
// before that was asked does not permit it, and may be of either kind: the remedy is
// the same. So it is for one that does not say how many places it has (see [shares]). A server that does not answer now is not looked at, as in [External.checkSync],
// and nobody is kept from starting: the nodes are there, and the provisioner that was there
// before has served them no worse.
func (e *External) checkAccounts(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	// A connection of its own, whose complaints are the answer and nothing to be logged.
	nc, err := e.dial(ctx, "provisioner accounts", e.system, nats.CustomInboxPrefix(controlInbox), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return // the server went away just now, and will be complained of
	}
	defer nc.Close()
	// Servers refuse before they answer a ping, so that nobody waits for an answer that
	// is not permitted.
	if nc.Publish(askAccounts, nil) == nil && nc.FlushWithContext(ctx) == nil && errors.Is(nc.LastError(), nats.ErrPermissionViolation) {
		e.log.WarnContext(ctx, "brokers have a configuration of a version before, by which any node of the fleet may be able to write over records of others: "+
			"print it again with `muster broker config`, one server after the other", "subject", e.cfg.URLs)
		return
	}
	var former, silent []string
	_ = gather(ctx, e, nc, askAccounts, server.AccountzOptions{Account: AccountMuster}, func(_ string, r reported[server.Accountz]) {
		if r.Data.Account != nil && slices.ContainsFunc(r.Data.Account.Imports, func(i server.ExtImport) bool {
			return i.Type == jwt.Stream && i.Account == AccountFleet
		}) {
			former = append(former, r.Server.Name)
		}
		if placesOf(r.Server.Tags) == 0 {
			silent = append(silent, r.Server.Name)
		}
	})
	slices.Sort(former)
	slices.Sort(silent)
	if len(former) > 0 {
		e.log.WarnContext(ctx, "brokers have a configuration of a version before, by which any node of the fleet can write over records of others: "+
			"print it again with `muster broker config`, one server after the other", "subject", strings.Join(former, ", "))
	}
	if len(silent) > 0 {
		e.log.WarnContext(ctx, "brokers do not say how many places they have for machines without a certificate, so that any token can take all of them: "+
			"print their configuration again with `muster broker config`, one server after the other, or see to server_tags (muster_places)", "subject", strings.Join(silent, ", "))
	}
}
