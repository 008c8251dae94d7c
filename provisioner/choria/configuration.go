package choria

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"muster/internal/nearest"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// Settings say what every Choria server gets.
type Settings struct {
	// Brokers are the fleet's, as host:port or nats://host:port. Required.
	Brokers []string

	// BrokerCA is PEM with authorities that certify the fleet's brokers beside muster's own; may be empty.
	BrokerCA string

	// Collectives default to mcollective, and for servers with a server JWT to choria.
	Collectives []string

	// Issuer signs server JWTs for servers of protocol 2. Nil: these get certificates too.
	Issuer *jwt.Client

	// Fleet reaches servers in their fleet. Nil: they cannot be commanded, and nothing tells that they are back.
	Fleet *Fleet

	// ComeBack is how long a provisioned server may take until it is back in its fleet.
	ComeBack time.Duration
}

func (s *Settings) collectives(serverJWT bool) []string {
	switch {
	case len(s.Collectives) > 0:
		return s.Collectives
	case serverJWT:
		return []string{"choria"}
	}
	return []string{"mcollective"}
}

const keyHosts = "plugin.choria.middleware_hosts"

// complete adds what the server needs to end up in its fleet. The configuration may replace only the brokers and the
// collectives.
func (s *session) complete(files wire.Files) (wire.Files, error) {
	fixed := map[string]string{
		"identity":                       string(s.node),
		"plugin.choria.server.provision": "false", // without it the server is provisioned again
	}
	serverJWT := len(s.lease.Key) > 0
	given := map[string]string{
		keyHosts:                strings.Join(s.cfg.Brokers, ","),
		"plugin.choria.use_srv": "false",
		"collectives":           strings.Join(s.cfg.collectives(serverJWT), ","),
	}
	directory := s.lease.Directory
	if serverJWT {
		organization, key := s.cfg.Issuer.Organization()
		fixed["plugin.security.provider"] = "choria"
		fixed["plugin.security.issuer.names"] = organization
		fixed["plugin.security.issuer."+organization+".public"] = key
		fixed["plugin.security.choria.token_file"] = path.Join(directory, "server.jwt")
		fixed["plugin.security.choria.seed_file"] = path.Join(directory, "server.seed")
		fixed["plugin.security.choria.ca"] = path.Join(s.sslDirectory(), "ca.pem")
	} else {
		fixed["plugin.security.provider"] = "file"
		fixed["plugin.security.file.certificate"] = path.Join(directory, "certificate.pem")
		fixed["plugin.security.file.key"] = path.Join(directory, "private.pem")
		fixed["plugin.security.file.ca"] = path.Join(directory, "ca.pem")
	}
	settings := maps.Clone(given)
	maps.Copy(settings, files.Configuration)
	if settings["main_collective"] == "" {
		settings["main_collective"] = collectivesIn(settings)[0]
	}
	for _, key := range slices.Sorted(maps.Keys(fixed)) {
		if v, set := settings[key]; set && v != fixed[key] {
			return wire.Files{}, fmt.Errorf("setting %q: muster sets it for each Choria server, leave it out", key)
		}
	}
	maps.Copy(settings, fixed)
	files.Configuration = settings
	if f := s.cfg.Fleet; f != nil && settings["rpcauthorization"] == "" && files.ActionPolicies[agentPolicy] == "" {
		// Authorization is on by default: without a policy the server would take no command from muster either.
		files.ActionPolicies = maps.Clone(files.ActionPolicies)
		if files.ActionPolicies == nil {
			files.ActionPolicies = make(map[string]string)
		}
		files.ActionPolicies[agentPolicy] = "policy default deny\nallow\t" + f.caller() +
			"\treprovision restart shutdown\t*\t*\n"
	}
	return files, s.check(settings)
}

// collectivesIn returns at least one.
func collectivesIn(settings map[string]string) []string {
	return strings.Split(strings.ReplaceAll(settings["collectives"], " ", ""), ",")
}

// Preview returns the edge of a server that gets a certificate.
func (s *Settings) Preview(id wire.Identity) *provisioner.Edge {
	n := &session{
		Gateway: &Gateway{cfg: Config{Settings: *s}},
		node:    id,
		lease:   &provisioner.Lease{Directory: "/etc/choria/ssl"},
	}
	return &provisioner.Edge{Directory: n.lease.Directory, Complete: n.complete}
}

// agentPolicy is the policy of the agent that provisions, which is that of commands too.
const agentPolicy = "choria_provision"

// sslDirectory is where configure writes the certificate and the authorities.
func (s *session) sslDirectory() string {
	if len(s.lease.Key) > 0 {
		return path.Join(s.lease.Directory, "ssl")
	}
	return s.lease.Directory
}

// check refuses what a server would take and could not use: with provisioning switched off it never comes back.
func (s *session) check(settings map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if err := checkKey(key); err != nil {
			return err
		}
	}
	if settings["plugin.choria.use_srv"] != "false" {
		return nil // the brokers are in DNS
	}
	known := make(map[string]bool)
	for _, b := range s.cfg.Brokers {
		known[hostOf(b)] = true
	}
	for host := range strings.SplitSeq(settings[keyHosts], ",") {
		if !known[hostOf(host)] {
			return fmt.Errorf("setting %q: %.100q is no broker in choria.brokers: the server would never come back",
				keyHosts, host)
		}
	}
	return nil
}

// checkKey refuses a misspelled key, which servers ignore. Plugins have keys of their own.
func checkKey(key string) error {
	if slices.Contains(serverKeys, key) {
		return nil
	}
	meant := nearest.Word(key, serverKeys, 3)
	switch {
	case meant != "":
		return fmt.Errorf("setting %q is unknown to Choria servers: did you mean %q?", key, meant)
	case !strings.HasPrefix(key, "plugin."):
		return fmt.Errorf("setting %q is unknown to Choria servers", key)
	}
	return nil
}

// hostOf returns the host name of host:port or nats://host:port.
func hostOf(broker string) string {
	broker = strings.TrimSpace(broker)
	if !strings.Contains(broker, "://") {
		broker = "nats://" + broker
	}
	u, err := url.Parse(broker)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// CheckBroker returns why a server cannot use a broker's address, or nil.
func CheckBroker(broker string) error {
	u, err := url.Parse(broker)
	if host := hostOf(broker); err != nil && strings.Contains(broker, "://") || host == "" {
		return fmt.Errorf("broker %.100q: want host:port or nats://host:port", broker)
	}
	if u != nil && u.User != nil {
		return fmt.Errorf("broker of %q has a user: leave it out", u.Hostname())
	}
	return nil
}

// hashes returns a short hash of each value, since values may be secret.
func hashes(settings map[string]string) map[string]string {
	h := make(map[string]string, len(settings))
	for key, value := range settings {
		h[key] = wire.Sum([]byte(value))[:8]
	}
	return h
}
