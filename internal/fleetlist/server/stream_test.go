package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// streamClient reads the lines of a stream.
type streamClient struct {
	mu   sync.Mutex
	text bytes.Buffer
	end  func()
	done chan struct{}
}

func (*streamClient) Header() http.Header { return http.Header{} }
func (*streamClient) WriteHeader(int)     {}
func (*streamClient) Flush()              {}
func (c *streamClient) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(b)
}

// takeLines returns the lines that came since the last call.
func (c *streamClient) takeLines() (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for line := range strings.Lines(c.text.String()) {
		out = append(out, strings.TrimSpace(line))
	}
	c.text.Reset()
	return out
}

func (s *testServer) openStreamAs(name, address string) *streamClient {
	ctx, end := context.WithCancel(s.t.Context())
	c := &streamClient{end: end, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		s.serveRequest(c, requestAs(ctx, name, address))
	}()
	synctest.Wait()
	return c
}

// settleStreams lets streams send what has changed.
func settleStreams() {
	time.Sleep(batchPause + 2*minPause)
	synctest.Wait()
}

// checkLines fails unless the lines that came have these texts, each one all of its own.
func (c *streamClient) checkLines(t *testing.T, what string, want ...[]string) {
	t.Helper()
	lines := c.takeLines()
	if len(lines) != len(want) {
		t.Fatalf("%s: %d lines, want %d:\n%s", what, len(lines), len(want), strings.Join(lines, "\n"))
	}
	for i, texts := range want {
		for _, text := range texts {
			without, isAbsent := strings.CutPrefix(text, "-")
			if strings.Contains(lines[i], without) == isAbsent {
				t.Errorf("%s, line %d: %q in %s", what, i, text, lines[i])
			}
		}
	}
}

func (c *streamClient) close() {
	c.end()
	<-c.done
}

// checkNothingStays fails if the server keeps something of streams that are closed.
func (s *testServer) checkNothingStays() {
	s.t.Helper()
	if n := len(s.fleet.observers) + len(s.sources.open) + len(s.slots.byUser) + s.slots.open; n != 0 || s.fleet.isObserved {
		s.t.Errorf("of closed streams stay %v, %v, %+v", s.fleet.observers, s.sources.open, s.slots.byUser)
	}
}

func TestAPageIsAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t)
		for i := range 6 {
			s.putCluster(fmt.Sprint("c", i), "eu", true)
		}
		c := s.openStreamAs("aiko", atoll.FleetClustersPath+"?limit=3&watch=true&sort=name&q=-name:c9")
		c.checkLines(t, "first", []string{`"type":"PAGE"`, `"c0"`, `"c2"`, `-"c3"`, `"matching":6`, `-"order"`})
		s.putCluster("c1", "us", true)
		settleStreams()
		c.checkLines(t, "a change", []string{`"type":"CHANGED"`, `"region":"us"`, `-"c0"`, `-"order"`})
		s.putCluster("c5", "us", true)
		s.putCluster("c9", "eu", true)
		settleStreams()
		c.checkLines(t, "changes elsewhere")
		s.removeCluster("c0")
		settleStreams()
		c.checkLines(t, "a cluster that went", []string{`"CHANGED"`, `"name":"c3"`, `-"name":"c1"`, `"order":["c1","c2","c3"]`, `"matching":5`})
		s.reportDrift("c1", 2)
		settleStreams()
		c.checkLines(t, "drift", []string{`"name":"c1"`, `"drifted":1`, `-"order"`})
		for i := range 6 {
			s.removeCluster(fmt.Sprint("c", i))
		}
		settleStreams()
		c.checkLines(t, "no cluster", []string{`"PAGE"`, `"clusters":[]`, `"all":1`})
		time.Sleep(time.Minute)
		synctest.Wait()
		c.checkLines(t, "rest")
		c.close()
		s.checkNothingStays()
	})
}

func TestCountsAreAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t)
		s.putCluster("oslo", "eu", true)
		c := s.openStreamAs("aiko", atoll.FleetCountsPath+"?by=region&watch=true&q=region:eu")
		c.checkLines(t, "first", []string{`"type":"COUNTS"`, `"all":1`, `"matching":1`, `"value":"eu"`})
		s.putCluster("oslo", "eu", true) // another version of the same
		settleStreams()
		c.checkLines(t, "no other count")
		s.putCluster("rome", "eu", false)
		s.putCluster("york", "us", true)
		settleStreams()
		c.checkLines(t, "more clusters", []string{`"all":3`, `"matching":2`, `"NotReady":1`, `-"us"`})
		s.putCluster("oslo", "us", true)
		settleStreams()
		c.checkLines(t, "a cluster that left the filter", []string{`"all":3`, `"matching":1`})
		s.removeCluster("york")
		settleStreams()
		c.checkLines(t, "a smaller fleet", []string{`"all":2`, `"matching":1`})
		c.close()
		s.checkNothingStays()
	})
}

func TestAStreamOfCountsHasABoundOfGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t)
		for i := range maxStreamGroups {
			s.putCluster(fmt.Sprint("c", i), fmt.Sprint("r", i), true)
		}
		c := s.openStreamAs("aiko", atoll.FleetCountsPath+"?by=region&watch=true&limit=1")
		c.checkLines(t, "first", []string{`"moreGroups":1999`})
		s.putCluster("other", "other", true)
		settleStreams()
		<-c.done
		c.checkLines(t, "one group more", []string{`"ERROR"`, `"code":400`, "more than 2000 values"})
		if code, body := s.getAs("aiko", atoll.FleetCountsPath+"?by=region&limit=1"); code != http.StatusOK || !strings.Contains(body, `"moreGroups":2000`) {
			t.Errorf("once: %d %s", code, body)
		}
		s.checkNothingStays()
	})
}

func TestSourcesAreAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t)
		s.rights.set("team", "list sources shop", "watch sources shop")
		for i := range sourcesInLine + 1 {
			s.putSource("shop", fmt.Sprintf("s%03d", i), "one")
		}
		s.putSource("other", "web", "hidden")
		c := s.openStreamAs("team", atoll.FleetSourcesPath+"?namespace=shop&watch=true")
		c.checkLines(t, "first", []string{`"type":"SOURCES"`, `"s000"`, `-"s200"`, `-"complete"`, "-inventory"}, []string{`"s200"`, `"complete":true`, "-hidden"})
		s.putSource("shop", "s007", "two")
		s.putSource("other", "web", "hidden again")
		s.tables.FeedObject(&v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s001", UID: types.UID("shop/s001")}}, true)
		settleStreams()
		c.checkLines(t, "changes", []string{`"type":"CHANGED"`, `"two"`, `"gone":[{"namespace":"shop","name":"s001"}]`, "-hidden", "-inventory"})
		time.Sleep(time.Minute)
		synctest.Wait()
		c.checkLines(t, "rest")
		c.close()
		empty := s.openStreamAs("aiko", atoll.FleetSourcesPath+"?namespace=none&watch=true")
		empty.checkLines(t, "no Sources", []string{`"sources":[]`, `"complete":true`})
		empty.close()
		s.checkNothingStays()
	})
}

// A right that ends, ends the stream before another answer.
func TestStreamsEndWithTheRight(t *testing.T) {
	for _, path := range []string{atoll.FleetCountsPath, atoll.FleetClustersPath, atoll.FleetSourcesPath} {
		synctest.Test(t, func(t *testing.T) {
			s := newTestServer(t)
			s.rights.set("boris", "*")
			c := s.openStreamAs("boris", path+"?watch=true")
			if got := c.takeLines(); len(got) != 1 {
				t.Fatalf("%s: %q", path, got)
			}
			s.rights.set("boris", "watch clusters", "watch sources")
			s.putCluster("oslo", "eu", true)
			s.putSource("shop", "web", "one")
			settleStreams()
			<-c.done
			c.checkLines(t, path, []string{`"type":"ERROR"`, `"code":403`, "-oslo", "-shop"})
			s.checkNothingStays()
		})
	}
}

func TestStreamsEndAfterTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t)
		begin := time.Now()
		for _, path := range []string{atoll.FleetCountsPath, atoll.FleetClustersPath, atoll.FleetSourcesPath} {
			c := s.openStreamAs("aiko", path+"?watch=true")
			defer func() {
				if <-c.done; time.Since(begin) != streamTime {
					t.Errorf("%s ended after %s", path, time.Since(begin))
				}
			}()
		}
	})
}

func TestStreamsOfAUserAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t)
		s.rights.set("boris", "*")
		var open []*streamClient
		for range maxStreamsPerUser {
			open = append(open, s.openStreamAs("aiko", atoll.FleetCountsPath+"?watch=true"))
		}
		if code, body := s.getAs("aiko", atoll.FleetCountsPath+"?watch=true"); code != http.StatusTooManyRequests {
			t.Errorf("one more: %d %s", code, body)
		}
		open = append(open, s.openStreamAs("boris", atoll.FleetCountsPath+"?watch=true"))
		for _, c := range open {
			if got := c.takeLines(); len(got) != 1 {
				t.Errorf("%q", got)
			}
			c.close()
		}
		s.checkNothingStays()
	})
}

// Streams that see changes of many clusters at once have what a client that begins then has.
func TestAStreamEndsUpWithThePresentPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t)
		address := atoll.FleetClustersPath + "?limit=20&sort=region&by=region"
		c := s.openStreamAs("aiko", address+"&watch=true")
		rows := map[string]string{}
		var order []string
		for round := range 30 {
			for i := range 40 {
				switch (i*7 + round*3) % 5 {
				case 0:
					s.removeCluster(fmt.Sprint("c", i))
				case 1, 2:
					s.putCluster(fmt.Sprint("c", i), fmt.Sprint("r", (i+round)%6), i%3 > 0)
				}
			}
			settleStreams()
			for _, line := range c.takeLines() {
				order = applyLine(t, line, rows, order)
			}
		}
		_, body := s.getAs("aiko", address)
		var page struct{ Clusters []json.RawMessage }
		if err := json.Unmarshal([]byte(body), &page); err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, name := range order {
			got = append(got, rows[name])
		}
		for _, one := range page.Clusters {
			want = append(want, string(one))
		}
		if len(want) != 20 || strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("a stream ends with\n%s\nand a page has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		c.close()
	})
}

// applyLine applies a line of a page's stream as the console does: rows by name, and their order.
func applyLine(t *testing.T, text string, rows map[string]string, order []string) []string {
	t.Helper()
	var line struct {
		Type string
		Page struct {
			Clusters []json.RawMessage
			Order    []string
		}
	}
	if err := json.Unmarshal([]byte(text), &line); err != nil {
		t.Fatal(err)
	}
	if line.Type == "PAGE" {
		order = nil
	}
	for _, one := range line.Page.Clusters {
		var named struct{ Name string }
		if err := json.Unmarshal(one, &named); err != nil {
			t.Fatal(err)
		}
		if rows[named.Name] = string(one); line.Type == "PAGE" {
			order = append(order, named.Name)
		}
	}
	if line.Page.Order != nil {
		order = line.Page.Order
	}
	return order
}
