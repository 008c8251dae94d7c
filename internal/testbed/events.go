package testbed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"muster/internal/wire"
	"muster/provisioner"
)

// schemas compiles the schemas of all events, once: compiled ones are safe for
// concurrent use.
var schemas = sync.OnceValues(func() (map[provisioner.EventType]*jsonschema.Schema, error) {
	all := map[provisioner.EventType]*jsonschema.Schema{}
	for i := range provisioner.EventTypes {
		m := &provisioner.EventTypes[i]
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

// CheckEvent returns why a CloudEvent in JSON is not one of docs/events.md.
func CheckEvent(b []byte) error {
	all, err := schemas()
	if err != nil {
		return err
	}
	var e provisioner.StoredEvent
	if err := json.Unmarshal(b, &e); err != nil {
		return err
	}
	schema := all[e.Type]
	if schema == nil {
		return fmt.Errorf("event %q is not in provisioner.EventTypes", e.Type)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return err
	}
	return schema.Validate(v)
}

// checkEmitted fails the test for an event that is not as documented.
func (f *Fleet) checkEmitted(e provisioner.Event) {
	if f.opts.Quiet {
		return // benchmarks
	}
	data, err := json.Marshal(e)
	var b []byte
	if err == nil {
		b, err = json.Marshal(&provisioner.StoredEvent{SpecVersion: "1.0", ID: wire.NewID(), Source: "testbed", Type: e.Type, Subject: e.Node,
			Time: e.Time, DataContentType: "application/json", Data: data})
	}
	if err == nil {
		err = CheckEvent(b)
	}
	if err != nil {
		f.t.Errorf("emitted %s: %v", data, err)
	}
}
