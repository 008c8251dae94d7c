package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// limitTag marks members of requests that narrow whom an order is for, and do not where they are
// absent:
//
//	KeyHash string `json:"key_hash,omitempty" httpapi:"limit"`
//
// Whoever sends one without anything in it has a variable that is not set, and means not
// everybody.
const limitTag = "limit"

// emptyLimits returns a mistake for each limit in the JSON object b, which was decoded into a t,
// that is there and empty.
func emptyLimits(b []byte, t reflect.Type) error {
	if t.Kind() != reflect.Struct {
		return nil
	}
	limits := slices.DeleteFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return f.Tag.Get("httpapi") != limitTag })
	if len(limits) == 0 {
		return nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		return err
	}
	var errs []error
	for _, f := range limits {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		value := string(members[name])
		if value == `""` || strings.HasPrefix(value, "[") && strings.TrimSpace(value[1:len(value)-1]) == "" {
			errs = append(errs, fmt.Errorf("%s: is empty: give it a value, or leave it out", name))
		}
	}
	return errors.Join(errs...)
}
