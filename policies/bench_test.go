package policies_test

import (
	"bytes"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/policies"
)

// factsOf returns facts of about n bytes, nested as facts of machines are.
func factsOf(n int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"role":"web"`)
	for i := 0; b.Len() < n-1; i++ {
		fmt.Fprintf(&b, `,"interface%d":{"address":"192.0.2.%d","mtu":1500,"up":true,"flags":["broadcast","multicast"]}`, i, i%256)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// BenchmarkDecide measures a decision with all that belongs to it: the built-in
// policy, and one of about 30 lines that looks at a fact. DESIGN.md holds it to
// 40 µs of CPU with 2 KB of facts and 170 µs with 20 KB where only the facts that
// policies name are decoded. Beside it is what it costs to give the policy
// everything. What `cpu` says is of the whole process, the garbage collector
// included, and is what counts on a machine that others use as well.
func BenchmarkDecide(b *testing.B) {
	for _, policy := range []struct {
		name string
		cfg  policies.Config
	}{
		{"builtin", policies.Config{Builtin: true}},
		{"lines30", policies.Config{Paths: []string{"../examples/policies/site-and-role/policy.rego"}}},
	} {
		e, err := policies.Load(policy.cfg)
		if err != nil {
			b.Fatal(err)
		}
		for _, size := range []int{2 << 10, 20 << 10} {
			in := stranger()
			in.Identity, in.CSR.CommonName, in.CSR.DNSNames = "web1.ams.example.net", "web1.ams.example.net", []string{"web1.ams.example.net"}
			in.Facts = factsOf(size)
			in.Token.Site, in.Token.Extensions = "ams", []byte(`{"muster":{"ca":"`+strings.Repeat("0", 64)+`"}}`)
			for _, given := range []struct {
				name string
				e    *policies.Engine
			}{{"named", e}, {"everything", e.Whole()}} {
				b.Run(fmt.Sprintf("%s/%dKiB/%s", policy.name, size>>10, given.name), func(b *testing.B) {
					b.ReportAllocs()
					start := cpu(b)
					for b.Loop() {
						if _, err := given.e.Decide(b.Context(), in); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(cpu(b)-start)/float64(b.N)/1e3, "cpu-µs/op")
				})
			}
		}
	}
}

// BenchmarkDecideParallel measures decisions side by side: -cpu 1,2 shows what a
// second core gives.
func BenchmarkDecideParallel(b *testing.B) {
	e, err := policies.Load(policies.Config{Builtin: true})
	if err != nil {
		b.Fatal(err)
	}
	in := stranger()
	in.Facts = factsOf(2 << 10)
	start := cpu(b)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := e.Decide(b.Context(), in); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(cpu(b)-start)/float64(b.N)/1e3, "cpu-µs/op")
}

// cpu returns the time that this process has spent on processors.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
