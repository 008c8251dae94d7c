// Package migrate says what the settings of other provisioners are in muster.
package migrate

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"muster/internal/conffile"
	"muster/internal/daemon"
	"muster/internal/wire"
)

// choriaFile has every key that Choria's provisioner 0.16 reads. The tag otherwise is the note on a setting that muster
// does in another way, the tag none that on a setting without a counterpart.
type choriaFile struct {
	Helper            conffile.At[string]   `yaml:"helper"`
	VerifyCert        conffile.At[string]   `yaml:"jwt_verify_cert"`
	CertDenyList      []conffile.At[string] `yaml:"cert_deny_list"`
	SigningKey        conffile.At[string]   `yaml:"jwt_signing_key"`
	SigningToken      conffile.At[string]   `yaml:"jwt_signing_token"`
	Site              conffile.At[string]   `yaml:"site"`
	MonitorPort       conffile.At[int]      `yaml:"monitor_port"`
	Token             conffile.At[string]   `yaml:"token" otherwise:"the secret of the token that each node shows"`
	RegoPolicy        conffile.At[string]   `yaml:"rego_policy" otherwise:"Choria never evaluated it"`
	LeaderElection    conffile.At[bool]     `yaml:"leader_election" otherwise:"all provisioners serve at once"`
	ServerJWTValidity conffile.At[string]   `yaml:"server_jwt_validity" otherwise:"certificate.ttl of the policy"`
	Workers           conffile.At[int]      `yaml:"workers" otherwise:"nothing to set"`
	Interval          conffile.At[string]   `yaml:"interval" otherwise:"the gateway acts when a node connects"`
	Logfile           conffile.At[string]   `yaml:"logfile" otherwise:"standard error"`
	Loglevel          conffile.At[string]   `yaml:"loglevel" otherwise:"--log-level of muster provisioner run"`
	Component         conffile.At[string]   `yaml:"lifecycle_component" none:"not needed"`
	Insecure          conffile.At[bool]     `yaml:"choria_insecure" none:"nodes connect with TLS"`
	BrokerPassword    conffile.At[string]   `yaml:"broker_provisioning_password" none:"not needed"`
	BrokerPort        conffile.At[int]      `yaml:"broker_port" none:"Choria's provisioner does not use it"`
	UpgradesRepo      conffile.At[string]   `yaml:"upgrades_repository" none:"muster upgrades no server of Choria"`
	UpgradesOptional  conffile.At[bool]     `yaml:"upgrades_optional" none:"muster upgrades no server of Choria"`
	Features          struct {
		PKI      conffile.At[bool] `yaml:"pki" otherwise:"always, unless a node gets a server JWT"`
		Ed25519  conffile.At[bool] `yaml:"ed25519"`
		JWT      conffile.At[bool] `yaml:"jwt" otherwise:"always: a node without a valid token is refused"`
		Upgrades conffile.At[bool] `yaml:"upgrades" none:"muster upgrades no server of Choria"`
	} `yaml:"features"`

	helper []string // the words of Helper
}

func (f *choriaFile) check() error {
	v := &daemon.Mistakes{}
	at := func(line int, key string) string { return fmt.Sprintf("line %d: %s", line, key) }
	var err error
	f.helper, err = words(f.Helper.Value)
	v.Check(at(f.Helper.Line, "helper"), err)
	for i, expr := range f.CertDenyList {
		_, err := regexp.Compile(bare(expr.Value))
		v.Check(at(expr.Line, fmt.Sprintf("cert_deny_list[%d]", i)), err)
	}
	if both := f.Features; both.PKI.Value && both.Ed25519.Value {
		v.Bad(at(both.Ed25519.Line, "features"), "pki and ed25519 are both true, want one of them")
	}
	return v.Err()
}

// slashes may stand around a regular expression.
var slashes = regexp.MustCompile(`^/+(.+?)/+$`)

func bare(expr string) string { return slashes.ReplaceAllString(expr, "$1") }

var (
	word   = regexp.MustCompile(`(?s)(?:[^\s"'\\]|\\.|"[^"\\]*"|'[^']*')+`)
	quoted = regexp.MustCompile(`(?s)\\(.)|"([^"\\]*)"|'([^']*)'`)
)

// words splits a command as a POSIX shell does, without expanding anything.
func words(command string) (all []string, err error) {
	if strings.TrimSpace(word.ReplaceAllString(command, "")) != "" {
		return nil, errors.New("has an open quote, or a backslash within double quotes")
	}
	for _, text := range word.FindAllString(command, -1) {
		all = append(all, quoted.ReplaceAllString(text, "$1$2$3"))
	}
	return all, nil
}

// simple matches expressions whose parts are parts of patterns, up to the end of the name.
var simple = regexp.MustCompile(`^(\^?)(\.[*+])?((?:[a-z0-9-]|\\\.|\[\^\.\][*+]?)+)\$$`)

var globs = strings.NewReplacer(`\.`, ".", "[^.]*", "*", "[^.]+", "?*", "[^.]", "?")

// Patterns returns patterns that match the same identities as a regular expression of cert_deny_list, or nil if there
// are none.
func Patterns(expr string) (all []wire.Pattern) {
	m := simple.FindStringSubmatch(bare(expr))
	if m == nil {
		return nil
	}
	name := globs.Replace(m[3])
	texts := []string{name}
	switch free := m[1] == "" || m[2] != ""; {
	case free && name[0] == '.': // no name begins with a dot
		texts = []string{"**" + name}
	case free && m[2] != ".+":
		texts = []string{"*" + name, "**.*" + name}
	case free || name == "*": // as a pattern, * covers all names
		return nil
	}
	for _, text := range texts {
		p, err := wire.ParsePattern(text)
		if err != nil {
			return nil
		}
		all = append(all, p)
	}
	return all
}
