package server

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

	"muster/internal/wire"
)

// hostsFile maps addresses to names on every Unix.
const hostsFile = "/etc/hosts"

// machineIdentity is the identity of a machine with this host name: the name if
// it is qualified, else the qualified name that /etc/hosts gives to it, else the
// bare name. DNS is not asked: a machine whose name depended on whether DNS
// answered would be two nodes to the fleet. Operating systems keep host names in
// any case, so the name is folded here, and nowhere else.
//
// What every machine is called before it has a name, at its first boot say, is
// none.
func machineIdentity(name string) (wire.Identity, error) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if !strings.Contains(name, ".") {
		if b, err := os.ReadFile(hostsFile); err == nil {
			name = qualify(name, string(b))
		}
	}
	id, err := wire.ParseIdentity(name)
	if err == nil && (name == "localhost" || strings.HasPrefix(name, "localhost.")) {
		err = fmt.Errorf("%q, as of a machine that has no name yet", name)
	}
	if err != nil {
		return "", fmt.Errorf("host name: %w: set `identity` in server.conf or use --identity", err)
	}
	return id, nil
}

// qualify returns the first name in a hosts file that is name with a domain, on
// a line that also has name itself; or name.
func qualify(name, hosts string) string {
	lines := bufio.NewScanner(strings.NewReader(hosts))
	for lines.Scan() {
		line, _, _ := strings.Cut(strings.ToLower(lines.Text()), "#")
		fields := strings.Fields(line)
		if len(fields) < 2 || !slices.Contains(fields[1:], name) {
			continue
		}
		for _, f := range fields[1:] {
			if strings.HasPrefix(f, name+".") {
				return strings.TrimSuffix(f, ".")
			}
		}
	}
	return name
}
