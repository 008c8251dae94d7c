package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/bench"
	"muster/internal/cli"
)

// benchTableVerb is "muster bench-table": what `make bench` runs.
type benchTableVerb struct {
	table    bench.Table
	slowDisk string
	doc      string
}

const benchTableHelp = `Runs the standard rows of docs/performance.md, one after the other, each with a
provisioner and a store of its own, and prints them as Markdown: of several rounds,
the median of each figure. Takes thirteen minutes a round on two cores; nothing
else should run meanwhile.

  muster bench-table --row shared --row tcp --rounds 1
  muster bench-table --slow-disk bin/muster-slow-disk --doc docs/performance.md`

func addBenchTable(app *kingpin.Application, all verbs) {
	v := &benchTableVerb{}
	c := app.Command("bench-table", "Measure the standard table.").HelpLong(benchTableHelp).Hidden()
	cli.Int(c.Flag("rounds", "How often every row is run.").Default("3"), &v.table.Rounds)
	cli.Int(c.Flag("nodes", "How many nodes, in each wave of each row.").Default("40000"), &v.table.Nodes)
	cli.Int(c.Flag("stored", "Records of the row that has many.").Default("1000000"), &v.table.Stored)
	cli.Int(c.Flag("idle", "Nodes of the row that has a fleet connected.").Default("10000"), &v.table.Idle)
	c.Flag("row", "Only this row (repeatable): "+strings.Join(bench.RowKeys(), ", ")+".").PlaceHolder("KEY").StringsVar(&v.table.Rows)
	c.Flag("slow-disk", "Program of the row with a slow disk, as .ci/slow-disk makes it.").PlaceHolder("FILE").StringVar(&v.slowDisk)
	c.Flag("doc", "Page to write the table into as well, after each round.").PlaceHolder("FILE").StringVar(&v.doc)
	c.Flag("dir", "Where temporary directories are made: the disk that is measured. Default: $TMPDIR or /tmp.").PlaceHolder("DIR").StringVar(&v.table.Dir)
	all.Check(c, v.check)
	all[c.FullCommand()] = cli.CleansUp(v.run)
}

// check returns what is wrong with the command line.
func (v *benchTableVerb) check() error {
	err := v.table.Check()
	if v.slowDisk != "" {
		if _, missing := os.Stat(v.slowDisk); missing != nil {
			err = errors.Join(fmt.Errorf("--slow-disk: %w", missing), err)
		}
	}
	return err
}

func (v *benchTableVerb) run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	v.table.Program, v.table.Progress = programAt(self), benchProgress
	if v.slowDisk != "" {
		v.table.SlowDisk = programAt(v.slowDisk)
	}
	v.table.Each = func(round int, row bench.Row, r *bench.Result) {
		cli.Say(os.Stderr, program, "round %d, %s: %.0f enrolled and %.0f provisioned a minute, %.0f µs serving, p99 %.0f ms",
			round, row.Key, r.NodesPerMinute, r.ProvisionedPerMinute, r.ServingCPU, r.P99)
	}
	if v.doc != "" {
		v.table.Page = func(page string) error { return bench.WriteTable(v.doc, page) }
	}
	page, err := v.table.Run(ctx)
	if err != nil {
		return err
	}
	_, err = io.WriteString(os.Stdout, page)
	return err
}

// programAt starts a build of muster, under its name.
func programAt(file string) func(...string) *exec.Cmd {
	return func(args ...string) *exec.Cmd {
		cmd := exec.Command(file, args...)
		cmd.Args[0] = program
		return cmd
	}
}

// benchProgress shows a phase on standard error.
func benchProgress(label string, nodes int) (func(int), func()) {
	bar := cli.NewProgress(os.Stderr, label, nodes)
	return bar.Add, bar.Done
}
