package peer

import (
	"bytes"
	"crypto/rand"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/internal/testwait"
)

// TestAHubLeadsToAnothersAgents: what one hub is asked for it gets by way of the one that
// holds the agent, whose refusals come back as they are.
func TestAHubLeadsToAnothersAgents(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	subject := pkix.Name{CommonName: CommonName, Organization: []string{Organization}}
	a, b := f.start("127.0.0.1:0", subject), f.start("127.0.0.1:0", subject)
	agents := make(chan net.Conn, 1)
	b.dialled = func(uid string) (net.Conn, error) {
		if uid != "tokyo" {
			return nil, status.Error(codes.ResourceExhausted, "full")
		}
		hub, agent := net.Pipe()
		agents <- agent
		return hub, nil
	}
	if _, err := a.DialCluster(t.Context(), "tokyo"); status.Code(err) != codes.NotFound {
		t.Errorf("of an agent that no hub holds: %v", err)
	}
	b.StreamOpened("tokyo")
	b.StreamOpened("full")
	f.waitUntil("a hears of b's agents", func() bool { return a.knownSession("tokyo") == "elsewhere" && a.knownSession("full") == "elsewhere" })
	if !a.IsHeldElsewhere("tokyo") || a.IsHeldElsewhere("oslo") || b.IsHeldElsewhere("tokyo") {
		t.Error("the holder of tokyo is not the expected one")
	}
	if _, err := a.DialCluster(t.Context(), "full"); status.Code(err) != codes.ResourceExhausted || status.Convert(err).Message() != "full" {
		t.Errorf("of one that the other hub refuses: %v", err)
	}

	conn, err := a.DialCluster(t.Context(), "tokyo")
	if err != nil {
		t.Fatal(err)
	}
	agent := <-agents
	go func() { _, _ = io.Copy(agent, agent) }()
	sent := make([]byte, 1<<20)
	_, _ = rand.Read(sent)
	go func() { _, _ = conn.Write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("what came back differs: %v", err)
	}
	conn.Close()
	_ = agent.SetReadDeadline(time.Now().Add(testwait.HangLimit))
	if _, err := agent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the agent's end, when the client has gone: %v", err)
	}

	if conn, err = a.DialCluster(t.Context(), "tokyo"); err != nil {
		t.Fatal(err)
	}
	(<-agents).Close()
	_ = conn.SetReadDeadline(time.Now().Add(testwait.HangLimit))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the client, when the agent has gone: %v", err)
	}
}
