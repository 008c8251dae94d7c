package wire

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/go-json-experiment/json/jsontext"
)

// errMembers means that a text is no JSON object.
var errMembers = errors.New("no JSON object")

// EachMember calls each with every member of a JSON object, in its order and with its value as it is written, and
// stops at its first error. It makes nothing of the values, so that two facts of 20 KB cost no decoding of the rest.
// A text that is no object is an error that wraps [ErrJSON]. name is good until each returns.
func EachMember(object []byte, each func(name []byte, value json.RawMessage) error) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(object), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if token, err := d.ReadToken(); err != nil || token.Kind() != jsontext.KindBeginObject {
		return notJSON(errMembers)
	}
	var name []byte
	for d.PeekKind() == jsontext.KindString {
		quoted, err := d.ReadValue()
		if err == nil {
			name, err = jsontext.AppendUnquote(name[:0], quoted)
		}
		value, verr := d.ReadValue()
		if err != nil || verr != nil {
			return notJSON(errMembers) // without the text, which may be a secret
		}
		end := int(d.InputOffset())
		if err := each(name, object[end-len(value):end:end]); err != nil {
			return err
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return notJSON(errMembers)
	}
	return nil
}
