// Package broker runs a NATS server in this process and decides which clients may connect, and to which account.
// Only this package imports nats-server.
//
// One port takes plain, TLS and mutual TLS connections, because a new node has no certificate yet. [Gate.Authorize]
// chooses the account:
//
//   - with a token: [AccountProvisioning], for enroll requests, confirmations and its own inbox;
//   - with a node's certificate: [AccountFleet], for its own subjects, confirmations and renewals;
//   - with a provisioner's certificate, or by [Broker.Connect]: [AccountMuster].
//
// Requests that cross into MUSTER carry a Nats-Request-Info header, which a client cannot forge. NATS does not check
// reply subjects: a client can direct a genuine reply to another node's inbox or command subject. So match replies
// to requests by id, obey no command without a reply subject, and never answer an event.
package broker
