package facts

import (
	"encoding/json"
	"strings"

	"muster/provisioner/events"
)

// DefaultShown are the facts that are kept of nodes that wait: what tells
// one machine from another, by the names that Facter, Ansible and Choria give
// them. A dot leads into an object. All others may be secrets for all that muster knows, and
// are only for the policy.
func DefaultShown() []string {
	return []string{
		"hostname", "fqdn", "domain", "serialnumber", "uuid", "manufacturer", "productname", "virtual", "is_virtual",
		"macaddress", "ipaddress", "architecture", "osfamily", "operatingsystem", "operatingsystemrelease",
		"os.name", "os.family", "os.release.full", "dmi.manufacturer", "dmi.product.name", "dmi.product.serial_number", "dmi.product.uuid",
		"networking.fqdn", "networking.ip", "networking.mac", "role", "rack", "site", "datacenter",
	}
}

// Bounds of what is kept of facts; chosen. Together they are below 16 KiB of a node
// that waits.
const (
	MaxShown     = 64
	maxNameBytes = 64
	MaxBytes     = 128 // of a value
)

// Shown returns those of the facts that are looked for, cut to [MaxBytes].
func (f *Finder) Shown(facts json.RawMessage) map[string]string {
	shown := make(map[string]string)
	f.find(facts, func(name, value string) {
		shown[name] = events.Scrub(strings.ToValidUTF8(events.Cut(value, MaxBytes), ""))
	})
	return shown
}
