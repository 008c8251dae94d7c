// Package broker runs a NATS server inside this process and decides which clients may
// connect to it as what. It is the only package that knows nats-server.
//
// One port takes plain, TLS and mutual TLS connections, since a machine that is
// not provisioned has no certificate yet. Which account a connection ends in
// follows from what it presents, and is decided by one function,
// [Gate.Authorize]:
//
//   - a token: [AccountProvisioning], where it may publish enroll requests and
//     confirmations, listen to its own inbox, and do nothing else;
//   - a node's certificate: [AccountFleet], confined to its own subjects, to
//     confirmations and to renewals;
//   - a provisioner's certificate: [AccountMuster], with JetStream;
//   - nothing, from inside this process: [AccountMuster] too; see [Broker.Connect].
//
// Accounts share nothing but what is listed in accounts.go. Requests that cross
// from the first two into MUSTER carry a Nats-Request-Info header written by
// the server, which a client cannot forge: its "acc" and "user" are
// [Admission.Account] and [Admission.User], or the connection's verified nkey.
//
// # Trust
//
// Everything a connection presents is a claim until Authorize has returned.
// The subject to which a requester wants its reply is never checked by NATS, so
// it can aim a provisioner's genuine reply at a subject of its own account to
// which it could not publish: another's inbox, or a node's command subject. So
// match replies to requests by their id, and obey no command that has no reply
// subject of its own: a reply gone astray has none. Answer no event, since a
// node chooses where the answer would go.
//
// # Storage
//
// JetStream keeps its streams below [Config].StoreDir and syncs every write to
// disk before it acknowledges it. A directory serves one broker at a time: a
// lock file says so to the second. The broker never deletes state; what nats-server
// derives from it, it deletes where that may be wrong (index.go).
package broker
