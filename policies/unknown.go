package policies

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// unknownMembers returns an error that names the members in b, JSON that becomes a t, which
// there are none of, each by where it is, and those that there are in their places. It returns
// nil if that is not what is wrong with b.
func unknownMembers(b []byte, t reflect.Type) error {
	var value any
	if json.Unmarshal(b, &value) != nil {
		return nil
	}
	u := &unknown{}
	u.look("", value, t)
	if len(u.names) == 0 {
		return nil
	}
	const most = 10 // are named; chosen, it may be another file altogether
	what := "unknown member "
	if len(u.names) > 1 {
		what = "unknown members "
	}
	more := ""
	if n := len(u.names); n > most {
		u.names, more = u.names[:most], fmt.Sprintf(" and %d more", n-most)
	}
	return fmt.Errorf("%s%s%s; want %s", what, strings.Join(u.names, ", "), more, strings.Join(u.wanted, "; "))
}

// unknown collects what [unknownMembers] says.
type unknown struct {
	names  []string
	wanted []string // of each place with such names, the members
}

// look looks at the value at a place, "" for the whole.
func (u *unknown) look(place string, value any, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	object, ok := value.(map[string]any)
	if !ok || t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return
	}
	members, names := make(map[string]reflect.Type), []string{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		members[name], names = f.Type, append(names, name)
	}
	found := false
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if members[name] == nil {
			u.names, found = append(u.names, fmt.Sprintf("%.80q", below(place, name))), true
		}
	}
	if found && place == "" {
		u.wanted = append(u.wanted, strings.Join(names, ", "))
	} else if found {
		u.wanted = append(u.wanted, strings.Join(names, ", ")+" in "+place)
	}
	for _, name := range names {
		u.look(below(place, name), object[name], members[name])
	}
}

// below is where a member is.
func below(place, name string) string {
	if place == "" {
		return name
	}
	return place + "." + name
}
