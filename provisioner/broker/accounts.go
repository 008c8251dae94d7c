package broker

import (
	"fmt"

	"muster/internal/wire"
)

// The accounts. A connection is in exactly one, and a message crosses from one
// to another only where this file says so.
const (
	// AccountProvisioning holds machines that have a token and no certificate.
	AccountProvisioning = "PROVISIONING"

	// AccountFleet holds provisioned nodes.
	AccountFleet = "FLEET"

	// AccountMuster holds provisioners and their JetStream. No other account
	// has JetStream.
	AccountMuster = "MUSTER"

	// AccountSystem is nats-server's own. No client is admitted to an embedded
	// broker's; provisioners that share other servers watch them there.
	AccountSystem = "SYS"
)

// allCommands covers what [wire.CommandSubject] returns for every node.
const allCommands = "muster.v1.command.*"

// Limits per connection on subscriptions. An agent uses two or three: its
// inbox and its commands; chosen to leave room and to stop a flood.
const (
	maxProvisioningSubscriptions = 8
	maxFleetSubscriptions        = 16
)

// How long a broker remembers where an answer would go. A client that asks over and over without an answer
// costs it as much memory: 350 bytes for each of 50,000 requests a second from one
// connection (measured), for two minutes by default.
const (
	// requestThreshold is how long a provisioner works on a request at most
	// (natsapi.Config.Timeout), twice as long as a node waits.
	requestThreshold = "30s"
	// eventThreshold is that of events and registration data, which are not answered.
	eventThreshold = "100ms"
)

// maxProvisioning is how many of a server's connections may hold a token only, so that they cannot keep out the fleet.
func maxProvisioning(maxConnections int) int { return max(1, maxConnections*2/3) }

// accountsConfig returns the accounts in nats-server's configuration language.
//
// Requests are services: the reply finds its way back over the boundary, and
// share makes the server tell the responder which client asks. That goes for commands
// too, from MUSTER to FLEET: over an exported stream a node's answer would stay
// in FLEET. So are events and registration data, which are not to be answered: over
// a stream the sender's choice of where an answer goes would be a subject of
// MUSTER, a record of another node's say, and JetStream answers when it is overrun.
//
// Of the members of each account, users has more; nil for our own server, which needs none. Without store the
// streams are on other servers.
func accountsConfig(provisioning int, store bool, users map[string]string) string {
	return fmt.Sprintf(`
system_account: %[4]s
accounts {
  %[4]s {%[16]s}
  %[3]s {%[15]s
    jetstream: %[17]s
    exports: [
      {service: %[5]q, accounts: [%[1]s], response_threshold: %[19]q}
      {service: %[6]q, accounts: [%[1]s, %[2]s], response_threshold: %[19]q}
      {service: %[14]q, accounts: [%[2]s], response_threshold: %[19]q}
      {service: %[7]q, accounts: [%[2]s], response_threshold: %[18]q}
      {service: %[8]q, accounts: [%[2]s], response_threshold: %[18]q}
    ]
    imports: [
      {service: {account: %[2]s, subject: %[9]q}}
    ]
  }
  %[1]s {
    imports: [
      {service: {account: %[3]s, subject: %[5]q}, share: true}
      {service: {account: %[3]s, subject: %[6]q}, share: true}
    ]
    limits {max_payload: %[10]d, max_subscriptions: %[11]d, max_connections: %[13]d}
  }
  %[2]s {
    exports: [
      {service: %[9]q, accounts: [%[3]s]}
    ]
    imports: [
      {service: {account: %[3]s, subject: %[6]q}, share: true}
      {service: {account: %[3]s, subject: %[14]q}, share: true}
      {service: {account: %[3]s, subject: %[7]q}}
      {service: {account: %[3]s, subject: %[8]q}}
    ]
    limits {max_payload: %[10]d, max_subscriptions: %[12]d}
  }
}
`, AccountProvisioning, AccountFleet, AccountMuster, AccountSystem, // 1 to 4
		wire.SubjectEnroll, wire.SubjectApplied, // 5, 6
		wire.AllNodeEvents, wire.AllRegistration, allCommands, // 7 to 9
		wire.MaxMessageBytes, maxProvisioningSubscriptions, maxFleetSubscriptions, provisioning,
		wire.SubjectRenew, users[AccountMuster], users[AccountSystem], // 14 to 16
		map[bool]string{true: "enabled", false: "disabled"}[store], eventThreshold, requestThreshold) // 17 to 19
}
