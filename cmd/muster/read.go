package main

import (
	"context"

	"muster/internal/cli"
	"muster/internal/conffile"
	"muster/internal/keyfile"
	"muster/policies"
)

// What a command line names as a file may be a pipe, such as a shell's <(command): nobody who
// gives a signal waits for whoever was to write to it.

// readFile is [conffile.ReadFile] until ctx ends.
func readFile(ctx context.Context, path string) ([]byte, error) {
	return cli.Await(ctx, func() ([]byte, error) { return conffile.ReadFile(path) })
}

// readKey is [keyfile.ReadKey] until ctx ends.
func readKey(ctx context.Context, path string) ([]byte, error) {
	return cli.Await(ctx, func() ([]byte, error) { return keyfile.ReadKey(path) })
}

// readLine is [keyfile.ReadLine] until ctx ends.
func readLine(ctx context.Context, path string) ([]byte, error) {
	return cli.Await(ctx, func() ([]byte, error) { return keyfile.ReadLine(path) })
}

// loadPolicy loads a policy and runs its tests until ctx ends.
func loadPolicy(ctx context.Context, path string) (*policies.Engine, error) {
	return cli.Await(ctx, func() (*policies.Engine, error) { //nolint:contextcheck // it takes none: tests of policies are bounded
		return policies.Load(policies.Config{Paths: []string{path}})
	})
}
