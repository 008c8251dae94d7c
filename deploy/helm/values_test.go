package helm_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

const chart = "muster"

type object = map[string]any

// read returns the content of a YAML or JSON file of the chart.
func read(t *testing.T, name string) object {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, name))
	if err != nil {
		t.Fatal(err)
	}
	o := object{}
	if err := yaml.Unmarshal(text, &o); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return o
}

// overlay returns base with the members of over in place of its own, as helm merges values.
func overlay(base, over object) object {
	merged := maps.Clone(base)
	for key, value := range over {
		below, isObject := value.(object)
		own, wasObject := merged[key].(object)
		if isObject && wasObject {
			value = overlay(own, below)
		}
		merged[key] = value
	}
	return merged
}

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSchemaAndValuesHaveTheSameMembers compares all objects whose members the schema lists.
func TestSchemaAndValuesHaveTheSameMembers(t *testing.T) {
	t.Parallel()
	root := read(t, "values.schema.json")
	definitions := root["definitions"].(object)
	var compare func(path string, schema, values object)
	compare = func(path string, schema, values object) {
		if ref, ok := schema["$ref"].(string); ok {
			schema = definitions[filepath.Base(ref)].(object)
		}
		listed, ok := schema["properties"].(object)
		if !ok || schema["additionalProperties"] != false {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(listed)) {
			if _, ok := values[key]; !ok && path+key != "global" && path != "merge." {
				t.Errorf("%s%s is in values.schema.json, not in values.yaml", path, key)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			below, ok := listed[key].(object)
			if !ok {
				t.Errorf("%s%s is in values.yaml, not in values.schema.json", path, key)
			} else if own, ok := values[key].(object); ok {
				compare(path+key+".", below, own)
			}
		}
	}
	compare("", root, read(t, "values.yaml"))
}

// examples returns the names of the examples of values.
func examples(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(chart, "ci", "*.yaml"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for i, name := range names {
		names[i] = strings.TrimPrefix(name, chart+"/")
	}
	return names
}

func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	s := schema(t)
	for _, name := range examples(t) {
		if err := s.Validate(overlay(read(t, "values.yaml"), read(t, name))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// mistakes are values with what helm's answer names.
var mistakes = []struct{ values, want string }{
	{`{}`, "/trustDomain"},
	{`{trustDomain: Example.net}`, "/trustDomain"},
	{`{trustDomain: example.net, replicas: 2}`, "/replicas"},
	{`{trustDomain: example.net, mode: clustered}`, "/mode"},
	{`{trustDomain: example.net, mode: external}`, "/brokers/urls"},
	{`{trustDomain: example.net, mode: external, brokers: {urls: ["nats://n1:4222"]}}`, "/brokers/urls/0"},
	{`{trustDomain: example.net, storage: {siz: 1Gi}}`, "'siz'"},
	{`{trustDomain: example.net, storage: {size: 1}}`, "/storage/size"},
	{`{trustDomain: example.net, image: {digest: "sha256:12"}}`, "/image/digest"},
	{`{trustDomain: example.net, setup: {secret: ""}}`, "/setup/secret"},
	{`{trustDomain: example.net, backup: {enabled: true}}`, "/api/enabled"},
	{`{trustDomain: example.net, api: {enabled: true, ingress: {enabled: true}}}`, "/api/ingress/host"},
	{`{trustDomain: example.net, api: {enabled: true, route: {enabled: true, host: a.b}}}`, "/api/route/parentRefs"},
	{`{trustDomain: example.net, test: {secret: muster-test}}`, "/test/domain"},
	{`{trustDomain: example.net, merge: {statefulset: {}}}`, "'statefulset'"},
}

func TestMistakesAreRefused(t *testing.T) {
	t.Parallel()
	s := schema(t)
	for _, m := range mistakes {
		over := object{}
		if err := yaml.Unmarshal([]byte(m.values), &over); err != nil {
			t.Fatal(err)
		}
		err := s.Validate(overlay(read(t, "values.yaml"), over))
		if err == nil || !strings.Contains(err.Error(), m.want) {
			t.Errorf("%s: %v, want %q", m.values, err, m.want)
		}
	}
}
