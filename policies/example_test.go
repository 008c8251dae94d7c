package policies_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"muster/policies"
)

func ExampleEngine_Decide() {
	rules := `package muster.enroll

default allow := false

allow if input.facts.role == "web"

deny contains "the rack is full" if input.facts.rack == 4

configuration := {"identity": input.identity}
`
	dir, err := os.MkdirTemp("", "policy")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	err = os.WriteFile(filepath.Join(dir, "web.rego"), []byte(rules), 0o600)
	engine, lerr := policies.Load(policies.Config{Paths: []string{dir}})
	if err = errors.Join(err, lerr); err != nil {
		fmt.Println(err)
		return
	}
	for _, facts := range []string{`{"role": "web"}`, `{"role": "web", "rack": 4}`, `{}`} {
		d, err := engine.Decide(context.Background(),
			&policies.Input{Identity: "web1.example.net", Facts: []byte(facts)})
		if err != nil {
			fmt.Println(err) // and deny
			return
		}
		fmt.Println(d.Verdict(), d.Why(), d.Configuration)
	}
	// Output:
	// allow [] map[identity:web1.example.net]
	// deny [the rack is full] map[identity:web1.example.net]
	// deny [no rule allows it] map[identity:web1.example.net]
}
