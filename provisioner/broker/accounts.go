package broker

import (
	"fmt"

	"muster/internal/wire"
)

const (
	// AccountProvisioning is for nodes with only a token.
	AccountProvisioning = "PROVISIONING"

	// AccountFleet is for provisioned nodes.
	AccountFleet = "FLEET"

	// AccountMuster is for provisioners; only it has JetStream.
	AccountMuster = "MUSTER"

	// AccountSystem is nats-server's own, used to watch external servers.
	AccountSystem = "SYS"
)

const allCommands = "muster.v1.command.*"

// Subscriptions per connection. An agent needs two or three.
const (
	maxProvisioningSubscriptions = 8
	maxFleetSubscriptions        = 16
)

// How long a broker remembers a reply subject, which takes 350 bytes; the default is two minutes. One connection can
// add 50,000 a second (measured).
const (
	// requestThreshold equals natsapi.Config.Timeout.
	requestThreshold = "30s"
	eventThreshold   = "100ms"
)

func maxProvisioning(maxConnections int) int { return max(1, maxConnections*2/3) }

// accountsConfig returns the accounts as text of a nats-server configuration.
//
// Accounts share subjects only as services. With streams, a node's reply to a command would stay in FLEET, and an
// event could name a reply subject in MUSTER, where JetStream replies when overrun. "share" names the client to the
// responder.
//
// maxConnections is that of each server. users adds users to accounts. Without store, another server has the streams.
func accountsConfig(servers, maxConnections int, store bool, users map[string]string) string {
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
      {service: %[27]q, accounts: [%[2]s], response_threshold: %[19]q}
      {service: %[7]q, accounts: [%[2]s], response_threshold: %[18]q}
      {service: %[8]q, accounts: [%[2]s], response_threshold: %[18]q}
      {service: %[22]q, accounts: [%[20]s], response_threshold: %[18]q}
      {service: %[23]q, accounts: [%[20]s], response_threshold: %[18]q}
    ]
    imports: [
      {service: {account: %[2]s, subject: %[9]q}}
      {service: {account: %[20]s, subject: %[21]q}}
    ]
  }
  %[1]s {
    imports: [
      {service: {account: %[3]s, subject: %[5]q}, share: true}
      {service: {account: %[3]s, subject: %[6]q}, share: true}
    ]
    limits {max_payload: %[10]d, max_subscriptions: %[11]d, max_connections: %[13]d}
  }
  %[20]s {
    exports: [
      {service: %[21]q, accounts: [%[3]s]}
    ]
    imports: [
      {service: {account: %[3]s, subject: %[22]q}, share: true}
      {service: {account: %[3]s, subject: %[23]q}, share: true}
    ]
    limits {max_payload: %[24]d, max_subscriptions: %[25]d, max_connections: %[26]d}
  }
  %[2]s {
    exports: [
      {service: %[9]q, accounts: [%[3]s]}
    ]
    imports: [
      {service: {account: %[3]s, subject: %[6]q}, share: true}
      {service: {account: %[3]s, subject: %[14]q}, share: true}
      {service: {account: %[3]s, subject: %[27]q}, share: true}
      {service: {account: %[3]s, subject: %[7]q}}
      {service: {account: %[3]s, subject: %[8]q}}
    ]
    limits {max_payload: %[10]d, max_subscriptions: %[12]d}
  }
}
`, AccountProvisioning, AccountFleet, AccountMuster, AccountSystem, // 1 to 4
		wire.SubjectEnroll, wire.SubjectApplied, // 5, 6
		wire.AllNodeEvents, wire.AllRegistration, allCommands, // 7 to 9
		wire.MaxMessageBytes, maxProvisioningSubscriptions, maxFleetSubscriptions,
		servers*maxProvisioning(maxConnections),                       // 13
		wire.SubjectRenew, users[AccountMuster], users[AccountSystem], // 14 to 16
		map[bool]string{true: "enabled", false: "disabled"}[store], eventThreshold, requestThreshold, // 17 to 19
		AccountChoria, choriaNode+">", choriaReply+">", choriaEvent, // 20 to 23
		maxChoriaPayload, maxChoriaSubscriptions, servers*maxChoria(maxConnections), // 24 to 26
		wire.SubjectCertificate)
}
