// Package eventcheck holds events to the schemas of docs/events.md, for tests.
// Whoever imports it, if only for that, has every event that a fleet of
// [testbed] emits checked: internal/arch wants it of every package whose tests
// have fleets. It is apart from testbed because its library compiles the schemas
// of JSON Schema itself when a program starts, which would be 20 of the 50 ms
// of each muster that the scripts of cmd/muster run.
package eventcheck

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"muster/internal/testbed"
	"muster/provisioner/events"
)

func init() { testbed.CheckEvent = Check }

// schemas compiles the schemas of all events, once: compiled ones are safe for
// concurrent use.
var schemas = sync.OnceValues(func() (map[events.Type]*jsonschema.Schema, error) {
	all := map[events.Type]*jsonschema.Schema{}
	for i := range events.Types {
		m := &events.Types[i]
		b, err := json.Marshal(m.Schema())
		if err != nil {
			return nil, err
		}
		schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		if err := c.AddResource("urn:muster:event:"+string(m.Type), schema); err != nil {
			return nil, err
		}
		if all[m.Type], err = c.Compile("urn:muster:event:" + string(m.Type)); err != nil {
			return nil, err
		}
	}
	return all, nil
})

// Check returns why a CloudEvent in JSON is not one of docs/events.md, nil if it
// is one. It is safe for concurrent use.
func Check(b []byte) error {
	all, err := schemas()
	if err != nil {
		return err
	}
	var e events.Stored
	if err := json.Unmarshal(b, &e); err != nil {
		return err
	}
	schema := all[e.Type]
	if schema == nil {
		return fmt.Errorf("event %q is not in events.Types", e.Type)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return err
	}
	return schema.Validate(v)
}
