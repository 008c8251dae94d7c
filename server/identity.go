package server

import (
	"bufio"
	"fmt"
	"slices"
	"strings"

	"muster/internal/inputfile"
	"muster/internal/wire"
)

// machineIdentity returns the host name if it has a domain, else its full name in /etc/hosts, else the bare name. It
// does not use DNS: the identity must not depend on whether DNS answers. It refuses localhost, the name before a
// machine is configured.
func machineIdentity(name string) (wire.Identity, error) {
	name = wire.FoldName(name)
	if !strings.Contains(name, ".") {
		if b, err := inputfile.ReadText(hostsFile, inputfile.Configured); err == nil {
			name = qualify(name, string(b))
		}
	}
	id, err := wire.ParseIdentity(name)
	if err == nil && (name == "localhost" || strings.HasPrefix(name, "localhost.")) {
		err = fmt.Errorf("the host name is %q: the machine has no name yet", name)
	}
	if err != nil {
		return "", fmt.Errorf("host name: %w: set `identity` in server.conf or use --identity", err)
	}
	return id, nil
}

// qualify returns the first name with a domain on a line of a hosts file that has the bare name; else name.
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
