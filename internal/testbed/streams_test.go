package testbed

import "testing"

// The stream has JetStream's defaults, with acknowledgements.
func TestCheckFindsAStreamThatAnswersNodes(t *testing.T) {
	t.Parallel()
	l := &listener{TB: t}
	f := New(l, Options{})
	conn, err := f.Daemon().Connect("careless")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	m, err := conn.RequestWithContext(f.Context(), "$JS.API.STREAM.CREATE.X",
		[]byte(`{"name":"X","subjects":["muster.v1.registration.*"],"storage":"memory","retention":"limits","num_replicas":1}`))
	if err != nil {
		t.Fatal(err)
	}
	f.Check()
	if t.Failed() || len(l.said) == 0 {
		t.Logf("stream: %s", m.Data)
	}
	heard(t, l, "stream X acknowledges what nodes publish to muster.v1.registration.*")
}
