package daemon

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
	"unicode"

	"muster/internal/conffile"
	"muster/internal/inputfile"
	"muster/internal/limit"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/helper"
)

type templateConfigurator struct{ t *template.Template }

type templateData struct {
	Identity   string         // web1.example.net
	Protocol   string         // one of [provisioner.Protocols]
	Hostname   string         // web1: the first label
	Domain     string         // example.net: the rest, may be ""
	Facts      map[string]any // unproven; numbers are json.Number
	Site       string         // the token's, may be ""
	Org        string         // the token's, default "choria"
	URLs       []string       // the token's brokers, none with an SRV domain
	SRVDomain  string         // the token's, "" with URLs
	Extensions map[string]any // the token's
}

func readTemplate(path string) (provisioner.Configurator, error) {
	return inputfile.Parse(path, inputfile.Configured, func(b []byte) (provisioner.Configurator, error) {
		return newTemplate(string(b))
	})
}

// newTemplate tries the template on a sample node, to find mistakes at the start.
func newTemplate(text string) (templateConfigurator, error) {
	t, err := template.New("server.conf").Option("missingkey=error").Funcs(template.FuncMap{"join": joinValues,
		oneLine: scalar}).Parse(text)
	if err != nil {
		return templateConfigurator{}, err
	}
	filled := templateConfigurator{t}
	for _, defined := range t.Templates() {
		guard(defined.Root)
	}
	_, err = filled.fill(templateData{
		Identity:   "web1.example.net",
		Protocol:   "muster",
		Hostname:   "web1",
		Domain:     "example.net",
		Org:        "choria",
		URLs:       []string{"broker.example.net:4222"},
		Facts:      map[string]any{},
		Extensions: map[string]any{},
	})
	// A fact that the sample lacks is no mistake.
	if err != nil && !strings.Contains(err.Error(), "map has no entry for key") {
		return templateConfigurator{}, err
	}
	return filled, nil
}

const oneLine = "muster_line"

// guard appends oneLine to every action that prints, so that a fact cannot add settings.
func guard(node parse.Node) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, c := range n.Nodes {
			guard(c)
		}
	case *parse.ActionNode:
		if len(n.Pipe.Decl) == 0 {
			n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{
				NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{parse.NewIdentifier(oneLine).SetPos(n.Pos)},
			})
		}
	case *parse.IfNode:
		guard(n.List)
		guard(n.ElseList)
	case *parse.RangeNode:
		guard(n.List)
		guard(n.ElseList)
	case *parse.WithNode:
		guard(n.List)
		guard(n.ElseList)
	}
}

func scalar(v any) (string, error) {
	switch v := v.(type) {
	case string:
		if strings.IndexFunc(v, unicode.IsControl) >= 0 {
			return "", errors.New("a value with a line break or control character")
		}
		return v, nil
	case json.Number, bool, int, float64:
		return fmt.Sprint(v), nil
	default:
		return "", fmt.Errorf("a value of type %T, want text, a number or a boolean", v)
	}
}

func joinValues(list any, separator string) (string, error) {
	var texts []string
	switch l := list.(type) {
	case []string:
		texts = l
	case []any:
		for _, v := range l {
			s, err := scalar(v)
			if err != nil {
				return "", err
			}
			texts = append(texts, s)
		}
	default:
		return "", fmt.Errorf("join of a %T, want a list", list)
	}
	return strings.Join(texts, separator), nil
}

// Configure implements [provisioner.Configurator].
func (t templateConfigurator) Configure(_ context.Context, s provisioner.Subject) (wire.Files, error) {
	data := templateData{
		Identity:   s.Identity,
		Protocol:   s.Source.Protocol,
		Facts:      map[string]any{},
		Site:       s.Token.Site,
		Org:        s.Token.Org,
		URLs:       s.Token.URLs,
		SRVDomain:  s.Token.SRVDomain,
		Extensions: map[string]any{},
	}
	data.Hostname, data.Domain, _ = strings.Cut(data.Identity, ".")
	for what, of := range map[string]struct {
		text json.RawMessage
		into *map[string]any
	}{"facts": {s.Facts, &data.Facts}, "extensions": {s.Token.Extensions, &data.Extensions}} {
		if len(of.text) == 0 {
			continue
		}
		d := json.NewDecoder(bytes.NewReader(of.text))
		d.UseNumber() // else 12345678 becomes 1.2345678e+07
		if err := d.Decode(of.into); err != nil {
			return wire.Files{}, fmt.Errorf("%s: %w", what, err)
		}
	}
	return t.fill(data)
}

func (t templateConfigurator) fill(data templateData) (wire.Files, error) {
	var b strings.Builder
	if err := t.t.Execute(&b, data); err != nil {
		return wire.Files{}, fmt.Errorf("template: %w", err)
	}
	settings, err := conffile.ParseSettings([]byte(b.String()))
	if err != nil {
		return wire.Files{}, fmt.Errorf("template: %w", err)
	}
	return wire.Files{Configuration: settings}, nil
}

// helperConfigurator runs a command as Choria's provisioner does.
type helperConfigurator struct{ h *helper.Helper }

// Configure implements [provisioner.Configurator].
func (h helperConfigurator) Configure(ctx context.Context, s provisioner.Subject) (wire.Files, error) {
	request := helper.Request{
		Source:   limit.Source(s.Source.Address),
		Identity: s.Identity,
		CSR:      s.CSRDER,
		Facts:    s.Facts,
		Claims:   choriaClaims(s),
	}
	if s.Edge != nil {
		request.Directory, request.Inventory = s.Edge.Directory, s.Edge.Inventory
		if len(s.CSRDER) == 0 {
			request.Key, _ = s.Edge.Key.PublicKey.(ed25519.PublicKey)
		}
	}
	r, err := h.h.Configure(ctx, request)
	switch {
	case errors.Is(err, helper.ErrBusy):
		return wire.Files{}, &provisioner.Refusal{Code: wire.CodeBusy, Err: err}
	case errors.Is(err, helper.ErrTimeout):
		return wire.Files{}, &provisioner.Refusal{Code: wire.CodeHelperTimeout, Err: err}
	case err != nil:
		return wire.Files{}, &provisioner.Refusal{Code: wire.CodeHelperFailed, Err: err}
	case r.Shutdown:
		return wire.Files{}, &provisioner.Refusal{Code: wire.CodeShutdown, Err: helperMessage(r.Msg)}
	case r.Defer:
		return wire.Files{}, &provisioner.Refusal{Code: wire.CodeDeferred, Err: helperMessage(r.Msg)}
	}
	return r.Files, nil
}

func helperMessage(msg string) error {
	if msg == "" {
		return nil
	}
	return fmt.Errorf("helper: %s", msg)
}

// choriaClaims leaves out secrets. In a preview, it has the claims that policies see.
func choriaClaims(s provisioner.Subject) map[string]any {
	in, t := s.Token, &jwt.Claims{Purpose: jwt.Purpose, Subject: jwt.Purpose}
	if s.Verified != nil {
		t = &s.Verified.Claims
	}
	m := map[string]any{
		"chs": in.Secure, "chu": strings.Join(in.URLs, ","), "chsrv": in.SRVDomain, "chpd": in.Default,
		"chrd": t.Registration, "chf": t.Facts,
		"chusr": t.Username, "ou": in.Org, "v2": t.ProtocolV2, "update": t.AllowUpdate, "purpose": t.Purpose,
		"extensions": in.Extensions, "iss": in.Issuer, "sub": t.Subject, "jti": t.JTI,
	}
	for name, at := range map[string]int64{"iat": in.IssuedAt.Unix(), "nbf": t.NotBefore.Unix(),
		"exp": in.ExpiresAt.Unix()} {
		if at > 0 { // the zero time is negative
			m[name] = at
		}
	}
	for _, k := range slices.Sorted(maps.Keys(t.Extra)) {
		if _, ok := m[k]; !ok {
			m[k] = t.Extra[k]
		}
	}
	return m
}
