package broker

import (
	_ "embed"
	"strconv"
	"text/template"

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

//go:embed server.conf.tmpl
var serverText string

var serverTemplate = template.Must(template.New("server").Funcs(template.FuncMap{
	"q":      strconv.Quote,
	"broker": func(domain, name string) string { return wire.RoleURI(domain, wire.RoleBroker, name).String() },
}).Parse(serverText))

// accountsData is what the template "accounts" needs. The limit c.MaxConnections is each server's.
func accountsData(c *ServerConfig, servers int) map[string]any {
	return map[string]any{
		"c":               c,
		"enroll":          wire.SubjectEnroll,
		"applied":         wire.SubjectApplied,
		"renew":           wire.SubjectRenew,
		"certificate":     wire.SubjectCertificate,
		"events":          wire.AllNodeEvents,
		"registration":    wire.AllRegistration,
		"commands":        allCommands,
		"choriaNodes":     choriaNode + ">",
		"choriaReplies":   choriaReply + ">",
		"choriaEvents":    choriaEvent,
		"maxMessage":      wire.MaxMessageBytes,
		"maxProvisioning": servers * max(1, c.MaxConnections*2/3),
		"maxChoria":       servers * max(1, c.MaxConnections/6),
	}
}
