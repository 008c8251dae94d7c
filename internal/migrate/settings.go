package migrate

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"

	"muster/internal/conffile"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/setup"
	"muster/jwt"
)

// A Result says what becomes of a setting.
type Result string

// What becomes of settings.
const (
	Kept      Result = "kept"      // provisioner.yaml has the same
	Otherwise Result = "otherwise" // muster does it in another way
	None      Result = "none"      // muster has nothing like it, or Choria's provisioner does not use it
	Todo      Result = "todo"      // an operator must act
)

// A Setting is one setting of another provisioner. It has no secret.
type Setting struct {
	Key    string `json:"key"`
	Line   int    `json:"line,omitempty"` // 0: not in the file
	Result Result `json:"result"`
	Muster string `json:"muster"` // key of provisioner.yaml; may be empty
	Note   string `json:"note"`
}

// A Plan is what becomes of a configuration.
type Plan struct {
	Settings []Setting
	Site     string
	Choria   setup.Choria // what an installation takes over
}

// Choria reads the configuration of Choria's provisioner. The error has all mistakes with their lines. If a file that
// it names is not there, its setting is to do.
func Choria(path string) (*Plan, error) {
	var f choriaFile
	err := conffile.LoadYAML(path, inputfile.Typed, &f)
	if err = errors.Join(err, conffile.Prefix(path, f.check())); err != nil {
		return nil, err
	}
	p := &Plan{Choria: setup.Choria{Gateway: true}}
	p.helper(&f)
	p.signer(f.VerifyCert)
	p.names(f.CertDenyList)
	p.add("", 0, Todo, "choria.brokers", "the fleet's brokers: plugin.choria.middleware_hosts of choria.cfg")
	p.add("", 0, Todo, "choria.ca", "the authority of these brokers: plugin.security.file.ca of choria.cfg")
	p.add("", 0, Todo, "choria.fleet", "a client of the fleet, for muster node reprovision")
	p.add("", 0, Todo, "certificates.max_lifetime", "and certificate.ttl of the policy: these nodes do not renew")
	p.issuer(&f)
	_, err = jwt.ParseSite(f.Site.Value)
	if p.judge("site", f.Site.Line, "site", "tokens for another site are refused", err) {
		p.Site = f.Site.Value
	}
	p.Choria.Metrics = f.MonitorPort.Value
	p.add("monitor_port", f.MonitorPort.Line, Kept, "health.listen", "with health.metrics")
	p.tagged("", reflect.ValueOf(f))
	p.tagged("features.", reflect.ValueOf(f.Features))
	return p, nil
}

// add adds a setting if the file has it. Without a key, it is one that the file cannot have.
func (p *Plan) add(key string, line int, result Result, muster, note string) {
	if key == "" || line > 0 {
		p.Settings = append(p.Settings, Setting{key, line, result, muster, note})
	}
}

// judge reports whether a setting can be kept. If not, err says why.
func (p *Plan) judge(key string, line int, muster, note string, err error) bool {
	result := Kept
	if err != nil {
		result, note = Todo, err.Error()
	}
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		note = e.Err.Error() // without the name, which may be a secret by mistake
	}
	p.add(key, line, result, muster, note)
	return err == nil
}

// tagged adds the settings whose tags say what becomes of them.
func (p *Plan) tagged(prefix string, settings reflect.Value) {
	for f, value := range settings.Fields() {
		for _, result := range []Result{Otherwise, None} {
			if note := f.Tag.Get(string(result)); note != "" {
				p.add(prefix+f.Tag.Get("yaml"), int(value.FieldByName("Line").Int()), result, "", note)
			}
		}
	}
}

// absolute returns the path that Choria's provisioner opens if it runs in this directory.
func absolute(path string) string {
	abs, _ := filepath.Abs(path) // it fails only in a directory that was removed
	return abs
}

func (p *Plan) helper(f *choriaFile) {
	if len(f.helper) == 0 {
		p.add("", 0, Todo, "configuration.template", "without a helper, the template makes configurations")
		return
	}
	if strings.Contains(f.helper[0], "/") {
		f.helper[0] = absolute(f.helper[0])
	}
	p.Choria.Helper = f.helper
	_, err := exec.LookPath(f.helper[0])
	note := fmt.Sprintf("with %d arguments; it must not sign, since muster does", len(f.helper)-1)
	p.judge("helper", f.Helper.Line, "configuration.helper", note, err)
}

// signer takes the public key alone: Choria does not look at the end of a certificate.
func (p *Plan) signer(cert conffile.At[string]) {
	signer, err := jwt.ParseSigner([]byte(cert.Value)) // a key in hex
	if err != nil {
		var text []byte
		if text, err = inputfile.ReadText(cert.Value, inputfile.Configured); err == nil {
			signer, err = jwt.ParseSigner(text)
		}
	}
	if err == nil {
		p.Choria.Signer, err = jwt.MarshalPublicKey(signer.Key)
	}
	if cert.Line == 0 {
		p.add("", 0, Todo, "tokens.signers", "the signer of the tokens")
	}
	p.judge("jwt_verify_cert", cert.Line, "tokens.signers", "tokens and images stay as they are", err)
}

func (p *Plan) names(denied []conffile.At[string]) {
	for i, expr := range denied {
		result, note := Todo, fmt.Sprintf("no patterns match the same names as %q", expr.Value)
		if patterns := Patterns(expr.Value); patterns != nil {
			result, note = Kept, strings.Trim(fmt.Sprint(patterns), "[]")
			for _, pattern := range patterns {
				p.Choria.Reserved = append(p.Choria.Reserved, string(pattern))
			}
		}
		p.add(fmt.Sprintf("cert_deny_list[%d]", i), expr.Line, result, "reserved", note)
	}
}

// issuer takes a chain issuer, never the organization's key.
func (p *Plan) issuer(f *choriaFile) {
	key, chain, ed25519 := f.SigningKey, f.SigningToken, f.Features.Ed25519
	result, note := None, "no issuer: nodes get certificates"
	switch {
	case !ed25519.Value:
		p.add("", 0, Todo, "ca", "the fleet's brokers must trust ca/root.pem, since muster signs")
	case key.Value == "" || chain.Value == "":
		result, note = Todo, "make a chain issuer: muster does not take the organization's key"
	default:
		result, note = Kept, "for nodes of protocol 2"
		p.Choria.IssuerToken, p.Choria.IssuerSeed = absolute(chain.Value), absolute(key.Value)
	}
	p.add("features.ed25519", ed25519.Line, result, "choria.issuer", note)
	if result != Kept {
		p.add("jwt_signing_key", key.Line, result, "", note)
		p.add("jwt_signing_token", chain.Line, result, "", note)
		return
	}
	const readable = "muster's user must be able to read it"
	seed, err := keyfile.ReadLine(key.Value, inputfile.Configured)
	if p.judge("jwt_signing_key", key.Line, "choria.issuer.seed", readable, err) {
		var text []byte
		var client *jwt.Client
		if text, err = keyfile.ReadLine(chain.Value, inputfile.Configured); err == nil {
			client, err = jwt.ParseClient(string(text), string(seed))
		}
		if err == nil {
			err = client.CheckIssuer()
		}
	}
	p.judge("jwt_signing_token", chain.Line, "choria.issuer.token", readable, err)
}
