package server

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Settings that a custom build compiles in, as Choria's custom builds do:
//
//	go build -ldflags "-X muster/server.buildSRVDomain=provision.example.net" ./cmd/muster-server
//
// Nothing assigns to them but the linker. All are texts because that is all
// that -X can set, and empty means not compiled in.
//
// What the token says wins over the places compiled in. Default and secure can
// only be switched on: a build that says so enrolls with, or asks TLS of, every
// token. `buildinfo` shows the outcome and where each part comes from.
var (
	buildTokenFile string // where the token lies, in place of the two default paths
	buildBrokers   string // comma separated brokers, for a token that names none
	buildSRVDomain string // domain for SRV records, for a token that names none
	buildDefault   string // true: provision by default, whatever the token's chpd says
	buildSecure    string // true: TLS while provisioning, whatever the token's chs says
)

// Where the token is looked for if neither flag nor build says.
var defaultTokenFiles = []string{"/etc/provisioning.jwt", "/etc/choria/provisioning.jwt"}

// Default places of the files that the agent keeps.
const (
	DefaultConfFile = "/etc/muster/server.conf"
	DefaultSSLDir   = "/etc/muster/ssl"
)

// compiledIn is what the variables above say, parsed.
type compiledIn struct {
	tokenFile string
	brokers   []string
	srvDomain string
	byDefault bool
	secure    bool
}

// readBuild parses the compiled-in settings, of which a custom build may have
// got any wrong. The error lists all that it did.
func readBuild() (compiledIn, error) {
	var errs []error
	flag := func(name, value string) bool {
		if value == "" {
			return false
		}
		b, err := strconv.ParseBool(value)
		if err != nil {
			errs = append(errs, fmt.Errorf("compiled-in %s is %q, want true or false", name, value))
		}
		return b
	}
	b := compiledIn{
		tokenFile: buildTokenFile,
		brokers:   splitList(buildBrokers),
		srvDomain: strings.TrimSpace(buildSRVDomain),
		byDefault: flag("buildDefault", buildDefault),
		secure:    flag("buildSecure", buildSecure),
	}
	return b, errors.Join(errs...)
}

// splitList splits a comma separated list, trims its elements and drops empty
// ones.
func splitList(s string) []string {
	var list []string
	for e := range strings.SplitSeq(s, ",") {
		if e = strings.TrimSpace(e); e != "" {
			list = append(list, e)
		}
	}
	return list
}
