package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAPipeIsNotWaitedForAfterASignal has nobody write to a pipe in the place of a file.
func TestAPipeIsNotWaitedForAfterASignal(t *testing.T) {
	t.Parallel()
	keys := t.TempDir()
	openssl(t, keys, "genpkey", "-algorithm", "ed25519", "-out", "key.pem")
	key := filepath.Join(keys, "key.pem")
	policy := filepath.Join(keys, "policy.rego")
	write(t, policy, "package muster.enroll\n\nallow if true\n")
	const elsewhere = "https://127.0.0.1:1"
	for _, args := range []string{
		"jwt pipe",
		"jwt new.jwt pipe --token a --srv example.net",
		"jwt new.jwt " + key + " --token-file pipe --srv example.net",
		"jwt new.jwt " + key + " --token a --srv example.net --ca pipe",
		"jwt new.jwt " + key + " --token a --srv example.net --seal pipe",
		"backup pipe --check",
		"policy eval " + policy + " --input pipe",
		"signer add pipe",
		"operator add anna --role viewer --key pipe",
		"operator token anna --key pipe --installation h0Jc4YzqC1bQm6tVgX9wKd",
		"status --url " + elsewhere + " --credential pipe",
		"status --url " + elsewhere + " --token-file pipe",
		"status --config pipe",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			cmd := command(t, strings.Fields(args)...)
			pipe := filepath.Join(cmd.Dir, "pipe")
			if err := unix.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			await(t, "somebody who reads", func() bool {
				w, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
				if err == nil {
					t.Cleanup(func() { _ = w.Close() })
				}
				return err == nil
			})
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 || stderr.String() != "muster: interrupted\n" {
				t.Errorf("exit status %d (%v), and it says %q, want 1 and that it was interrupted", cmd.ProcessState.ExitCode(), err, stderr.String())
			}
			if left := list(t, cmd.Dir); left != "pipe" {
				t.Errorf("it leaves %s", left)
			}
		})
	}
}
