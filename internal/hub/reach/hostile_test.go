package reach

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestAnAgentThatAnswersGarbage: its connection is closed, and who asked is told.
func TestAnAgentThatAnswersGarbage(t *testing.T) {
	for what, answer := range map[string]string{
		"an upgrade that nobody asked for": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: spdy\r\n\r\n",
		"an upgrade to nothing":            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"no HTTP":                          "\x00\x01\x02 go away\r\n\r\n",
		"a header without end":             "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+strings.Repeat("x", 1000)+"\r\n", 2000) + "\r\n",
	} {
		closed := make(chan error, 1)
		h := hub(t, hijacked(t, answer, closed), func(string) error { return nil }, true)
		if code, text := ask(t, h, "tokyo/proxy/api", jane()); code != 503 || !strings.Contains(text, "the connection to its agent broke") {
			t.Errorf("%s: %d %s", what, code, text)
		}
		if err := <-closed; err != nil {
			t.Errorf("%s: the connection is kept: %v", what, err)
		}
	}
}

// hijacked answers with bytes, and waits for the connection's end.
func hijacked(t *testing.T, answer string, closed chan<- error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = io.WriteString(conn, answer)
		_, err = io.Copy(io.Discard, conn)
		if e, ok := err.(net.Error); !ok || !e.Timeout() {
			err = nil
		}
		closed <- err
	})
}
