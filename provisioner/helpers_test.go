package provisioner_test

import (
	"testing"

	"muster/internal/simnode"
	"muster/provisioner/ca"
)

// keyHash returns the hash of a node's key.
func keyHash(t *testing.T, n *simnode.Node) string {
	t.Helper()
	hash, err := ca.KeyHash(n.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return hash
}
