package puppet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path"

	"muster/internal/conffile"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/ca"
)

// The setting keyFile names another file, in a directory that exists.
const (
	defaultDirectory = "/etc/muster"
	defaultFile      = defaultDirectory + "/server.conf"

	keyFile = "puppet.file"
)

func checkFiles(files wire.Files) (wire.Files, error) {
	file, set := files.Configuration[keyFile]
	if set && (!path.IsAbs(file) || path.Clean(file) != file || file == "/") {
		return wire.Files{}, fmt.Errorf("setting %q: want a clean absolute path", keyFile)
	}
	return files, nil
}

// catalog makes a node's catalog of the configuration that the policy decides with the facts of the run.
func (s *Server) catalog(r *request, environment string) (any, error) {
	form, err := url.ParseQuery(string(r.body))
	if err != nil {
		return nil, badDocument("the form cannot be read")
	}
	if format := form.Get("facts_format"); format != "" && format != typeJSON {
		return nil, badDocument("facts in %.80q, want %s", format, typeJSON)
	}
	facts, err := url.PathUnescape(form.Get("facts")) // they are encoded twice
	if err != nil {
		return nil, badDocument("the facts are not encoded twice")
	}
	e, err := s.configure(r, []byte(facts))
	if err != nil {
		return nil, err
	}
	return catalogOf(r.name, environment, e)
}

func (s *Server) facts(r *request, _ string) (any, error) {
	_, err := s.configure(r, r.body)
	return []string{}, err
}

// configure decides the node's configuration anew. Its certificate stays.
func (s *Server) configure(r *request, facts []byte) (*wire.Enrolled, error) {
	values, err := valuesOf(r.name, facts)
	if err != nil {
		return nil, err
	}
	key, err := ca.KeyRequest(r.TLS.PeerCertificates[0].PublicKey)
	if err != nil {
		return nil, badDocument("%v", err)
	}
	renewal := &wire.RenewRequest{
		ID:       wire.NewID(),
		Identity: r.name,
		Facts:    values,
		Agent:    r.agent(),
		Boot:     wire.NewID(),
	}
	switch {
	case len(values) > wire.MaxFactsBytes:
		renewal.FactsError = fmt.Sprintf("facts of %d bytes, limit %d", len(values), wire.MaxFactsBytes)
		renewal.Facts = nil
	case len(values) == 0:
		renewal.FactsError = "the request has no facts"
	}
	source := r.source()
	source.Edge = &provisioner.Edge{Key: key, Session: true, Keep: true, Complete: checkFiles}
	return s.cfg.Provisioner.Renew(r.Context(), renewal, source)
}

// valuesOf returns the facts in an agent's document. It may be empty.
func valuesOf(name string, document []byte) (json.RawMessage, error) {
	if len(document) == 0 {
		return nil, nil
	}
	var facts struct {
		Name   string          `json:"name"`
		Values json.RawMessage `json:"values"`
	}
	if err := wire.DecodeKnown(document, &facts); err != nil {
		return nil, badDocument("facts: %v", err)
	}
	if facts.Name != name {
		return nil, badDocument("the facts are of %.300q, want %q", facts.Name, name)
	}
	if len(facts.Values) > 0 && facts.Values[0] != '{' {
		return nil, badDocument("facts: the values are not an object")
	}
	return facts.Values, nil
}

// catalogOf returns the catalog of a configuration. Agents hide the content in logs and reports.
func catalogOf(name, environment string, e *wire.Enrolled) (object, error) {
	settings := maps.Clone(e.Configuration)
	file := cmp.Or(settings[keyFile], defaultFile)
	delete(settings, keyFile)
	resources, edges := []object{}, []object{}
	if len(settings) > 0 {
		b, err := conffile.FormatSettings(settings, "Written by Puppet for "+name+".\nEach run undoes changes.")
		if err != nil {
			return nil, err
		}
		if file == defaultFile {
			resources = append(resources, resource(defaultDirectory, object{"ensure": "directory"}))
			edges = append(edges, object{"source": "File[" + defaultDirectory + "]", "target": "File[" + file + "]"})
		}
		r := resource(file, object{
			"ensure":         "file",
			"content":        string(b),
			"checksum":       "sha256",
			"checksum_value": wire.Sum(b),
			"owner":          "root",
			"group":          "root",
			"mode":           "0640",
			"backup":         false,
			"show_diff":      false,
		})
		r["sensitive_parameters"] = []string{"content"}
		resources = append(resources, r)
	}
	return object{
		"name":           name,
		"version":        e.Digest,
		"code_id":        nil,
		"environment":    environment,
		"catalog_format": 2,
		"tags":           []string{},
		"classes":        []string{},
		"resources":      resources,
		"edges":          edges,
	}, nil
}

func resource(file string, parameters object) object {
	return object{
		"type":       "File",
		"title":      file,
		"kind":       "compilable_type", // without it the run dies
		"exported":   false,
		"tags":       []string{"file"},
		"parameters": parameters,
	}
}
