package verb

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/paging"
)

// A Filter is the query of a list of the provisioner's, set by flags.
type Filter struct {
	url.Values

	flags map[string]string // by parameter
	limit int               // of the rows; 0: all
}

// parameterOf maps flags to parameters with another name.
var parameterOf = map[string]string{
	"address":        "from",
	"expires-before": "expires_before",
	"expiring":       "expires_before",
	"token-id":       "token",
	"unseen":         "seen_before",
}

// Flag adds a flag that sets a parameter. A trailing * allows repetition.
func (q *Filter) Flag(c *kingpin.CmdClause, name string) *kingpin.FlagClause {
	name, many := strings.CutSuffix(name, "*")
	flag := cli.Flag(c, name)
	if set := q.setter(name); many {
		cli.ParseEach(flag, new([]string), set)
	} else {
		cli.Parse(flag, new(string), set)
	}
	return flag
}

// Switch adds a flag without a value that sets a parameter to true.
func (q *Filter) Switch(c *kingpin.CmdClause, name string) {
	var given bool
	set := q.setter(name)
	cli.Flag(c, name).Action(func(*kingpin.ParseContext) (err error) {
		if given {
			_, err = set("true")
		}
		return err
	}).BoolVar(&given)
}

// Arg makes an argument set a parameter.
func (q *Filter) Arg(arg *kingpin.ArgClause, parameter string) {
	cli.Arg(arg, new(string), q.setter(parameter))
}

func (q *Filter) setter(flag string) func(string) (string, error) {
	parameter := flag
	if other := parameterOf[flag]; other != "" {
		parameter = other
	}
	if q.Values == nil {
		q.Values, q.flags = url.Values{}, map[string]string{}
	}
	q.flags[parameter] = flag
	return func(s string) (string, error) { q.Add(parameter, s); return s, nil }
}

// Empty reports whether no flag is given.
func (q *Filter) Empty() bool { return len(q.Values) == 0 }

// Flags replaces the parameter at the start of each line of err by its flag. Nil stays nil.
func (q *Filter) Flags(err error) error {
	if err == nil {
		return nil
	}
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		rest := strings.TrimLeft(line, "abcdefghijklmnopqrstuvwxyz_")
		lines[i] = "--" + q.flags[strings.TrimSuffix(line, rest)] + rest
	}
	return errors.New(strings.Join(lines, "\n"))
}

// Paged is a list that the provisioner has in pages P with rows R.
type Paged[P, R any] struct {
	Route   string
	Parts   func(*P) (rows *[]R, next string)
	Sum     func(*P) string // the line after the list: counts of all rows
	Empty   string          // see [Rows]
	Columns []cli.Column[R]
}

// Add adds a verb that shows the list.
func (l *Paged[P, R]) Add(c *kingpin.CmdClause, all cli.Verbs, q *Filter) {
	q.Flag(c, "sort").HintOptions("name", "expires", "changed", "state", "site", "seen", "connected").
		Default(string(paging.ByName))
	cli.IntIn(cli.Flag(c, "limit").Default(strconv.Itoa(paging.DefaultLimit)), &q.limit, 0, math.MaxInt)
	q.Flag(c, "cursor")
	List(c, all, func(ctx context.Context, o *Operator) (*P, error) {
		return l.Get(ctx, o, q.Values, q.limit)
	}, func(o *Operator, p *P) Shown {
		rows, next := l.Parts(p)
		sum := l.Sum(p)
		if next != "" {
			sum += fmt.Sprintf("; %d are listed, --limit 0 lists all", len(*rows))
		}
		o.After("%s", sum)
		return &Rows[R]{Rows: *rows, Empty: l.Empty, Columns: l.Columns}
	})
}

// Get gets pages until there are limit rows, 0: all. The answer is the last page with the rows of all.
func (l *Paged[P, R]) Get(ctx context.Context, o *Operator, v url.Values, limit int) (*P, error) {
	all := []R{}
	for {
		size := paging.MaxLimit
		if limit > 0 {
			size = min(limit-len(all), size)
		}
		v.Set("limit", strconv.Itoa(size))
		p, err := Get[*P](ctx, o, l.Route+"?"+v.Encode())
		if err != nil {
			return nil, err
		}
		rows, next := l.Parts(p)
		all = append(all, *rows...)
		if *rows = all; next == "" || limit > 0 && len(all) >= limit {
			return p, nil
		}
		v.Set("cursor", next)
	}
}
