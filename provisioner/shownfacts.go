package provisioner

import (
	"bytes"
	"encoding/json"
	"strings"
)

// DefaultShownFacts are the facts that are kept of nodes that wait: what tells
// one machine from another, by the names that Facter, Ansible and Choria give
// them. A dot leads into an object. All others may be secrets for all that muster knows, and
// are only for the policy.
func DefaultShownFacts() []string {
	return []string{
		"hostname", "fqdn", "domain", "serialnumber", "uuid", "manufacturer", "productname", "virtual", "is_virtual",
		"macaddress", "ipaddress", "architecture", "osfamily", "operatingsystem", "operatingsystemrelease",
		"os.name", "os.family", "os.release.full", "dmi.manufacturer", "dmi.product.name", "dmi.product.serial_number", "dmi.product.uuid",
		"networking.fqdn", "networking.ip", "networking.mac", "role", "rack", "site", "datacenter",
	}
}

// Bounds of what is kept of facts; chosen. Together they are below 16 KiB.
const (
	MaxShownFacts    = 64
	maxFactNameBytes = 64
	maxFactBytes     = 128
)

// shownFacts returns those of the facts that are named and plain: text, numbers
// and truth values, cut to [maxFactBytes].
func shownFacts(facts json.RawMessage, names []string) map[string]string {
	if len(facts) == 0 || len(names) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(facts))
	d.UseNumber()
	var all map[string]any
	if d.Decode(&all) != nil {
		return nil // the policy has said so
	}
	shown := make(map[string]string)
	for _, name := range names {
		if text, ok := plainFact(all, name); ok {
			shown[name] = scrub(strings.ToValidUTF8(cut(text, maxFactBytes), ""))
		}
	}
	return shown
}

// plainFact looks a fact up by its dotted name: as it is, or through objects.
func plainFact(in map[string]any, name string) (string, bool) {
	switch v := in[name].(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		if v {
			return "true", true
		}
		return "false", true
	}
	first, rest, ok := strings.Cut(name, ".")
	if !ok {
		return "", false
	}
	inner, ok := in[first].(map[string]any)
	if !ok {
		return "", false
	}
	return plainFact(inner, rest)
}
