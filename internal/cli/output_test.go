package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
)

type disk struct {
	Name string    `json:"name"`
	Ends time.Time `json:"ends,omitzero"`
	Tags []string  `json:"tags,omitempty"`
}

// TestListHasOneSetOfColumnsForAllForms writes one list in each form.
func TestListHasOneSetOfColumnsForAllForms(t *testing.T) {
	t.Parallel()
	ends := time.Date(2100, 1, 31, 12, 0, 0, 0, time.FixedZone("", 3600))
	rows := []disk{{"a", ends, []string{"x", "y,z"}}, {Name: "b\x1b"}}
	columns := []cli.Column[disk]{
		{Title: "NAME", Value: func(d disk) any { return d.Name }},
		{Title: "VALID UNTIL", Value: func(d disk) any { return d.Ends }},
		{Title: "TAGS", Wide: true, Value: func(d disk) any { return d.Tags }},
	}
	for form, want := range map[string]string{
		"table": "NAME     VALID UNTIL\na        in DAYS\nb\\u001b  -\n",
		"wide":  "NAME     VALID UNTIL  TAGS\na        in DAYS    x, y,z\nb\\u001b  -            -\n",
		"csv":   "name,valid_until,tags\na,2100-01-31T11:00:00Z,\"x, y,z\"\nb\\u001b,,\n",
		"name":  "a\nb\\u001b\n",
		"jsonl": "{\"name\":\"a\",\"ends\":\"2100-01-31T12:00:00+01:00\",\"tags\":[\"x\",\"y,z\"]}\n{\"name\":\"b\\u001b\"}\n",
		"json":  "{\n  \"all\": 2\n}\n",
	} {
		o := &cli.Output{Forms: cli.ListForms()}
		app := kingpin.New("x", "")
		o.AddFlags(app.Command("list", ""))
		if _, err := app.Parse([]string{"list", "-o", form}); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := cli.WriteList(&b, o, map[string]int{"all": 2}, rows, columns); err != nil {
			t.Fatal(err)
		}
		days := b.String()
		if _, after, ok := strings.Cut(days, "in "); ok {
			number, _, _ := strings.Cut(after, "d")
			days = strings.Replace(days, number+"d", "DAYS", 1)
		}
		if strings.Join(strings.Fields(days), " ") != strings.Join(strings.Fields(want), " ") {
			t.Errorf("%s:\n%s\nwant\n%s", form, b.String(), want)
		}
	}
}

// TestNoFormPrintsWhatATerminalObeys writes a text with characters that move the cursor, turn the direction or end a
// line, in each form and in each log: none is printed, and JSON has the same text as before.
func TestNoFormPrintsWhatATerminalObeys(t *testing.T) {
	t.Parallel()
	const hostile = "a\x1b[2J\x7f\u0080\u0085\u009b\u009f\u00ad\u061c\u200b\u200e\u202e\u2028\u2029\u2066\ufeff\U000e0001é漢😀"
	raw, err := json.Marshal(map[string]json.RawMessage{"facts": json.RawMessage(`"` + hostile[len("a\x1b[2J"):] + `"`)})
	if err != nil {
		t.Fatal(err)
	}
	obeyed := func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
	for _, form := range append(cli.ListForms(), "log json", "log text", "raw") {
		var b strings.Builder
		o := &cli.Output{Forms: cli.ListForms()}
		var log cli.LogFlags
		app := kingpin.New("x", "")
		list := app.Command("list", "")
		o.AddFlags(list)
		log.Add(list)
		args := []string{"list", "-o", form}
		if kind, isLog := strings.CutPrefix(form, "log "); isLog {
			args = []string{"list", "--log-format", kind}
		} else if form == "raw" {
			args = args[:1]
		}
		if _, err := app.Parse(args); err != nil {
			t.Fatal(err)
		}
		switch {
		case form == "raw":
			err = cli.WriteJSON(&b, json.RawMessage(raw))
		case len(args) == 3 && args[1] == "--log-format":
			logger, _ := log.New(&b)
			logger.Info("said", "by", hostile)
		default:
			columns := []cli.Column[string]{{Title: "NAME", Value: func(s string) any { return s }}}
			err = cli.WriteList(&b, o, map[string]string{"name": hostile}, []string{hostile}, columns)
		}
		if err != nil {
			t.Fatal(err)
		}
		if i := strings.IndexFunc(b.String(), obeyed); i >= 0 || !strings.Contains(b.String(), "é漢😀") {
			t.Errorf("%s: character %d of %q", form, i, b.String())
		}
		if strings.HasPrefix(form, "json") {
			var as any
			if err := json.Unmarshal([]byte(b.String()), &as); err != nil || !strings.Contains(fmt.Sprint(as), hostile) {
				t.Errorf("%s: read back as %q, %v", form, as, err)
			}
		}
	}
}

// TestSingleAnswersHaveTwoForms has a verb without a list refuse the forms of lists, in one line.
func TestSingleAnswersHaveTwoForms(t *testing.T) {
	t.Parallel()
	app := kingpin.New("x", "")
	(&cli.Output{}).AddFlags(app.Command("show", ""))
	_, err := app.Parse([]string{"show", "-o", "csv"})
	if want := `--output is "csv", want table, json`; err == nil || err.Error() != want {
		t.Errorf("-o csv: %v, want %s", err, want)
	}
}
