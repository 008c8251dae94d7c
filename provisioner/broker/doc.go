// Package broker runs a NATS server in this process and decides which clients may connect, and as what. It alone
// imports nats-server.
//
// One port takes plain, TLS and mutual TLS connections, because a new node has no certificate yet. [Gate.Authorize]
// chooses the account:
//
//   - with a token: [AccountProvisioning], to publish enroll requests and confirmations and read its own inbox;
//   - with a node's certificate: [AccountFleet], limited to its own subjects, confirmations and renewals;
//   - with a provisioner's certificate, or from inside the process ([Broker.Connect]): [AccountMuster], with
//     JetStream.
//
// Accounts share only the subjects listed in accounts.go. Requests that cross into MUSTER carry a Nats-Request-Info
// header, which the server writes and a client cannot forge.
//
// NATS does not check the reply subject of a request. A client can aim a provisioner's genuine reply at another
// node's inbox or command subject. So match replies to requests by id, obey no command without a reply subject, and
// never answer an event.
package broker
