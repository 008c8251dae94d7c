package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"muster/internal/conffile"
	"muster/internal/keyfile"
	"muster/policies"
)

// What a command line names as a file may be a pipe, such as a shell's <(command): nobody who
// gives a signal waits for whoever was to write to it.

// readFile is [conffile.ReadFile] until ctx ends.
func readFile(ctx context.Context, path string) ([]byte, error) {
	return now(ctx, func() ([]byte, error) { return conffile.ReadFile(path) })
}

// readKey is [keyfile.ReadKey] until ctx ends.
func readKey(ctx context.Context, path string) ([]byte, error) {
	return now(ctx, func() ([]byte, error) { return keyfile.ReadKey(path) })
}

// readLine is [keyfile.ReadLine] until ctx ends.
func readLine(ctx context.Context, path string) ([]byte, error) {
	return now(ctx, func() ([]byte, error) { return keyfile.ReadLine(path) })
}

// readSigningKey is readKey of a private key to sign provisioning tokens with, and says
// where there is one if there is no such file.
func readSigningKey(ctx context.Context, path string) ([]byte, error) {
	b, err := readKey(ctx, path)
	return b, orMissing(err, "give the signer-key.pem that `muster provisioner init` made, or make a pair of keys with `muster jwt keys`")
}

// orMissing returns err, and if what it failed at is that a file is not there, what to do
// about that. Of nil it returns nil.
func orMissing(err error, remedy string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", err, remedy)
	}
	return err
}

// loadPolicy loads a policy and runs its tests until ctx ends.
func loadPolicy(ctx context.Context, path string) (*policies.Engine, error) {
	return now(ctx, func() (*policies.Engine, error) { //nolint:contextcheck // it takes none: tests of policies are bounded
		return policies.Load(policies.Config{Paths: []string{path}})
	})
}

// now returns what f does.
func now[T any](_ context.Context, f func() (T, error)) (T, error) { return f() }
