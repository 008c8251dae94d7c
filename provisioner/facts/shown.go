package facts

import (
	"encoding/json"
	"strings"

	"muster/provisioner/events"
)

// DefaultShown returns the facts shown by default: those that tell machines apart, named as in Facter, Ansible and
// Choria. Other facts may be secrets.
func DefaultShown() []string {
	return []string{
		"hostname", "fqdn", "domain", "serialnumber", "uuid", "manufacturer", "productname", "virtual", "is_virtual",
		"macaddress", "ipaddress", "architecture", "osfamily", "operatingsystem", "operatingsystemrelease",
		"os.name", "os.family", "os.release.full", "dmi.manufacturer", "dmi.product.name", "dmi.product.serial_number",
		"dmi.product.uuid",
		"networking.fqdn", "networking.ip", "networking.mac", "role", "rack", "site", "datacenter",
	}
}

// Bounds per pending node, below 16 KiB together.
const (
	MaxShown     = 64
	maxNameBytes = 64
	MaxBytes     = 128 // of a value
)

// Shown returns the wanted facts, cut to [MaxBytes].
func (f *Finder) Shown(facts json.RawMessage) map[string]string {
	shown := make(map[string]string)
	f.find(facts, func(name, value string) {
		shown[name] = events.Scrub(strings.ToValidUTF8(events.Cut(value, MaxBytes), ""))
	})
	return shown
}
