package httpapi

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
)

// schemaPlace is where schemas refer to each other.
const schemaPlace = "#/components/schemas/"

// schemas are the JSON Schemas (2020-12) of Go types as they go over the wire: a
// component for each struct, by the name of its type. A member that may be
// missing is no null, and a list is always there, if need be empty.
type schemas struct {
	structs map[string]reflect.Type // by name
	refs    map[reflect.Type]*jsonschema.Schema
}

// newSchemas returns the schemas of the types, and of all that is in them. An
// error is a mistake in this package.
func newSchemas(types []reflect.Type) (*schemas, error) {
	s := &schemas{structs: make(map[string]reflect.Type), refs: byHand()}
	for _, t := range types {
		if err := s.collect(t); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// byHand are the types that are not what reflection sees in them.
func byHand() map[reflect.Type]*jsonschema.Schema {
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[time.Time]():                {Type: "string", Format: "date-time"},
		reflect.TypeFor[time.Duration]():            {Type: "integer", Description: "nanoseconds"},
		reflect.TypeFor[[]byte]():                   {Type: "string", ContentEncoding: "base64"},
		reflect.TypeFor[json.RawMessage]():          {},
		reflect.TypeFor[provisioner.Facts]():        {Type: "object", AdditionalProperties: &jsonschema.Schema{Type: "string"}},
		reflect.TypeFor[wire.Code]():                enum(codes()),
		reflect.TypeFor[wire.Verb]():                enum(wire.Verbs),
		reflect.TypeFor[provisioner.Reason]():       enum(provisioner.Reasons),
		reflect.TypeFor[provisioner.OperatorRole](): enum(provisioner.OperatorRoles()),
		reflect.TypeFor[provisioner.State]():        enum(states),
		reflect.TypeFor[fleet.Order]():              enum(orders),
		reflect.TypeFor[provisioner.EventType]():    enum(eventTypes()),
	}
}

var (
	states = []provisioner.State{provisioner.StateNone, provisioner.StateEnrolled, provisioner.StateProvisioned, provisioner.StateRevoked, provisioner.StateRetired}
	orders = []fleet.Order{fleet.ByName, fleet.ByExpiry, fleet.ByChanged}
)

func codes() (all []wire.Code) {
	for _, m := range wire.Codes {
		all = append(all, m.Code)
	}
	for _, code := range provisioner.AlarmCodes {
		if !slices.Contains(all, code) {
			all = append(all, code)
		}
	}
	return all
}

func eventTypes() (all []provisioner.EventType) {
	for _, m := range provisioner.EventTypes {
		all = append(all, m.Type)
	}
	return all
}

func enum[T ~string](values []T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}

// collect finds the structs in t.
func (s *schemas) collect(t reflect.Type) error {
	switch {
	case s.refs[t] != nil:
		return nil
	case t.Kind() == reflect.Pointer, t.Kind() == reflect.Slice, t.Kind() == reflect.Array, t.Kind() == reflect.Map:
		return s.collect(t.Elem())
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		s.refs[t] = &jsonschema.Schema{Type: "string"}
		return nil
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()):
		return fmt.Errorf("schema of %v: it marshals itself: say in schema.go how", t)
	case t.Kind() != reflect.Struct:
		return nil
	}
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	if other := s.structs[name]; other != nil {
		return fmt.Errorf("schemas: %v and %v have one name", other, t)
	}
	s.structs[name] = t
	s.refs[t] = &jsonschema.Schema{Ref: schemaPlace + name}
	return s.members(t)
}

// members finds the structs in the fields of t. What is embedded has no schema
// of its own: its fields are t's.
func (s *schemas) members(t reflect.Type) error {
	for i := range t.NumField() {
		f := t.Field(i)
		var err error
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			err = s.members(f.Type)
		case f.IsExported() && f.Tag.Get("json") != "-":
			err = s.collect(f.Type)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// components returns the schema of each struct.
func (s *schemas) components() (map[string]*jsonschema.Schema, error) {
	all := make(map[string]*jsonschema.Schema, len(s.structs))
	for name, t := range s.structs {
		var err error
		if all[name], err = s.infer(t, t); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// of returns the schema of a value of type t.
func (s *schemas) of(t reflect.Type) (*jsonschema.Schema, error) { return s.infer(t, nil) }

// infer is [jsonschema.ForType] with references to all structs but one, which is
// written out.
func (s *schemas) infer(t, out reflect.Type) (*jsonschema.Schema, error) {
	known := make(map[reflect.Type]*jsonschema.Schema, len(s.refs))
	for k, v := range s.refs {
		if k != out && !embeds(out, k) {
			known[k] = v
		}
	}
	schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: known})
	if err != nil {
		return nil, err
	}
	withoutNull(schema)
	return schema, nil
}

// embeds reports whether t, nil for none, embeds the other.
func embeds(t, other reflect.Type) bool {
	if t == nil {
		return false
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous && (f.Type == other || f.Type.Kind() == reflect.Struct && embeds(f.Type, other)) {
			return true
		}
	}
	return false
}

// withoutNull takes back that whatever is a pointer or a slice may be null.
func withoutNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	s.Types = slices.DeleteFunc(s.Types, func(t string) bool { return t == "null" })
	if len(s.Types) == 1 {
		s.Type = s.Types[0]
	}
	s.Types = nil
	withoutNull(s.Items)
	withoutNull(s.AdditionalProperties)
	for _, p := range s.Properties {
		withoutNull(p)
	}
}
