package cli_test

import (
	"strings"
	"testing"
	"time"

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
