package wire

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// MaxDepth bounds the nesting of JSON from outside: facts of real machines nest less than 10 deep, and no
// recursion over 64 levels grows a stack.
const MaxDepth = 64

// ErrJSON means that bytes are not the one strict JSON value that was wanted. The text around it is one short line,
// whatever the bytes are.
var ErrJSON = errors.New("not strict JSON")

// maxJSONErrorBytes bounds what is passed on of a decoder's error, which may quote what a stranger sent.
const maxJSONErrorBytes = 200

// Both directions use the types' tags as encoding/json does. Beyond that, members are matched by their exact name,
// each may appear once and all must be known, and text must be UTF-8.
var (
	jsonForm = json.JoinOptions(
		jsonv1.OmitEmptyWithLegacySemantics(true),
		jsonv1.FormatDurationAsNano(true),
		json.FormatNilSliceAsNull(true),
		json.FormatNilMapAsNull(true),
		json.Deterministic(true),
	)
	jsonStrict = json.JoinOptions(jsonForm, json.RejectUnknownMembers(true))
	jsonOutput = json.JoinOptions(jsonForm, jsontext.AllowInvalidUTF8(true))
)

// DecodeStrict decodes the one JSON value in b into dst, a pointer. It refuses invalid UTF-8, data after the value,
// nesting deeper than [MaxDepth], a member that appears twice in one object and, where dst has a struct, a member
// that the struct does not name in exactly this spelling: two readers of a value that passes cannot disagree on what
// it says. The error wraps [ErrJSON], and dst is then unspecified.
func DecodeStrict(b []byte, dst any) error { return decodeJSON(b, dst, jsonStrict) }

// DecodeKnown is [DecodeStrict], but passes over members that a struct does not name.
func DecodeKnown(b []byte, dst any) error { return decodeJSON(b, dst, jsonForm) }

func decodeJSON(b []byte, dst any, form json.Options) error {
	if err := json.Unmarshal(b, dst, form); err != nil {
		return notJSON(err)
	}
	return checkDepth(b)
}

// CheckStrict makes the checks of [DecodeStrict] on a value of any shape.
func CheckStrict(b []byte) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(b))
	if err := d.SkipValue(); err != nil {
		return notJSON(err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: data after the value, at byte %d", ErrJSON, d.InputOffset())
	}
	return checkDepth(b)
}

// checkDepth returns an error if b, which is valid JSON, nests deeper than [MaxDepth].
func checkDepth(b []byte) error {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			if depth++; depth > MaxDepth+1 {
				return fmt.Errorf("%w: nested deeper than %d, at byte %d", ErrJSON, MaxDepth, i)
			}
		case '}', ']':
			depth--
		case '"':
			i += textLength(b[i:]) - 1
		}
	}
	return nil
}

// jsonTypes names the types that a kind of token begins.
var jsonTypes = strings.NewReplacer("{", "object", "[", "array", "true", "boolean", "false", "boolean")

// notJSON returns what a decoder says in the form of [ErrJSON].
func notJSON(err error) error {
	if err == nil {
		return nil
	}
	said := strings.TrimPrefix(err.Error(), "jsontext: ")
	if semantic := (*json.SemanticError)(nil); errors.As(err, &semantic) {
		at := cmp.Or(strings.TrimPrefix(string(semantic.JSONPointer), "/"), "the value")
		switch {
		case errors.Is(err, json.ErrUnknownName):
			said = fmt.Sprintf("unknown member %.80q", at)
		case semantic.Err != nil:
			said = fmt.Sprintf("%.80q: %v", at, semantic.Err)
		default:
			said = fmt.Sprintf("%.80q has a value of the wrong type, %s", at, jsonTypes.Replace(semantic.JSONKind.String()))
		}
	}
	if len(said) > maxJSONErrorBytes {
		said = strings.ToValidUTF8(said[:maxJSONErrorBytes], "") + "…"
	}
	return fmt.Errorf("%w: %s", ErrJSON, said)
}
