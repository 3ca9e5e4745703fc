package delivery

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"

	"golang.org/x/sync/errgroup"
)

// knocks marks the process that dials for BenchmarkHandshake.
const knocks = "ATOLL_TEST_KNOCKS"

// knockingAgents is the input of that process.
type knockingAgents struct {
	Address string
	CA      []byte
	Agents  []idleAgent
	Times   int // for each
	Resume  bool
}

// BenchmarkHandshake measures what it costs either end that an agent dials, and what a
// ticket saves. The agents are another process.
func BenchmarkHandshake(b *testing.B) {
	for name, resume := range map[string]bool{"full": false, "by-ticket": true} {
		b.Run(name, func(b *testing.B) {
			const agents, times = 20, 100
			for b.Loop() {
				h := newTestHub(b, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil)) })
				k := knockingAgents{Address: h.addr, CA: h.keys.ClusterCA.CertPEM, Agents: h.idleFleet(agents, 0).Agents, Times: times, Resume: resume}
				ask, answers, stop := startHelper(b, "TestManyHandshakes", knocks)
				if err := json.NewEncoder(ask).Encode(k); err != nil {
					b.Fatal(err)
				}
				answers.Scan() // all have come once
				cpu := cpuTime()
				stopProfile := profileCPU(b, "handshake-"+name)
				fmt.Fprintln(ask)
				answers.Scan()
				stopProfile()
				b.ReportMetric(float64((cpuTime()-cpu).Microseconds())/(agents*times), "hub-cpu-µs/dial")
				var theirs float64
				if _, err := fmt.Sscan(answers.Text(), &theirs); err != nil {
					b.Fatalf("the process that dials says %q: %v", answers.Text(), err)
				}
				b.ReportMetric(theirs/(agents*times), "agent-cpu-µs/dial")
				stop()
			}
		})
	}
}

// TestManyHandshakes is the process that dials.
func TestManyHandshakes(t *testing.T) {
	if os.Getenv(knocks) == "" {
		t.Skip("is run by a benchmark, in a process of its own")
	}
	var k knockingAgents
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &k)
	}
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(k.CA)
	var configs []*tls.Config
	for _, a := range k.Agents {
		key, err := x509.ParsePKCS8PrivateKey(a.Key)
		if err != nil {
			t.Fatal(err)
		}
		config := &tls.Config{
			MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1", RootCAs: roots, NextProtos: []string{"h2"},
			Certificates: []tls.Certificate{{Certificate: [][]byte{a.Certificate}, PrivateKey: key}},
		}
		if k.Resume {
			config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		}
		configs = append(configs, config)
	}
	come := func(times int, resumed bool) {
		var group errgroup.Group
		group.SetLimit(4)
		for _, config := range configs {
			group.Go(func() error {
				for range times {
					if was, err := handshakeOnce(k.Address, config); err != nil || was != resumed {
						return fmt.Errorf("resumed is %t: %w", was, err)
					}
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	come(1, false)
	fmt.Println()
	if _, err := in.ReadBytes('\n'); err != nil {
		t.Fatal(err)
	}
	cpu := cpuTime()
	come(k.Times, k.Resume)
	fmt.Println((cpuTime() - cpu).Microseconds())
	_, _ = io.Copy(io.Discard, in)
}
