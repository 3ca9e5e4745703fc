package console

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/console/issuer"
	"atoll.dev/atoll/internal/testwait"
)

const shellPath = "/api/v1/namespaces/shop/pods/web.oslo/exec"

const shellQuery = "?container=web&command=sh&stdin=true&stdout=true&tty=true"

// terminalHub is a console over a fake API, served by HTTP over TLS: a WebSocket takes its connection over.
type terminalHub struct {
	*testHub
	server *httptest.Server
}

// serveEcho is a container that sends back what it receives on the channel of the input. A member sets a cookie.
func serveEcho(w http.ResponseWriter, r *http.Request) {
	upgrader := websocket.Upgrader{Subprotocols: terminalProtocols, CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := upgrader.Upgrade(w, r, http.Header{"Set-Cookie": {"__Host-atoll-console=fixed; Path=/; Secure"}, "X-Evil": {"1"}})
	if err != nil {
		return
	}
	defer conn.Close()
	for {
		kind, message, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if len(message) > 0 && message[0] == 0 {
			message[0] = 1
		}
		if conn.WriteMessage(kind, message) != nil {
			return
		}
	}
}

func newTerminalHub(t *testing.T) *terminalHub {
	t.Helper()
	h := &terminalHub{testHub: newTestHub(t, 1)}
	h.api.exec = serveEcho
	h.server = httptest.NewTLSServer(h.handler)
	t.Cleanup(h.server.Close)
	return h
}

// cookieOf returns the cookie of a session, by the name that the server's port gives it.
func (h *terminalHub) cookieOf(token string, until time.Time) *http.Cookie {
	r := httptest.NewRequest("GET", h.server.URL, nil)
	return &http.Cookie{Name: cookieName(r), Value: h.console.seal.sealSession(session{token: token, until: until})}
}

// opening is a request for a terminal, as the page makes it.
type opening struct {
	path      string
	protocols []string
	header    http.Header
}

func (h *terminalHub) newOpening() *opening {
	until := testStart.Add(sessionTime)
	return &opening{
		path: apiPath + shellPath + shellQuery, protocols: []string{"v5.channel.k8s.io", "v4.channel.k8s.io", sessionProtocol + strconv.FormatInt(until.Unix(), 10)},
		header: http.Header{"Origin": {h.server.URL}, "Sec-Fetch-Site": {"same-origin"}, "Cookie": {h.cookieOf(goodToken, until).String()}},
	}
}

// dialTerminal opens a WebSocket, or returns the answer that opens none.
func (h *terminalHub) dialTerminal(o *opening) (*websocket.Conn, *http.Response) {
	h.t.Helper()
	dialer := websocket.Dialer{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Subprotocols: o.protocols, HandshakeTimeout: time.Minute}
	conn, answer, err := dialer.Dial(strings.Replace(h.server.URL, "https://", "wss://", 1)+o.path, o.header)
	if err != nil && answer == nil {
		h.t.Fatal(err)
	}
	if err != nil {
		return nil, answer
	}
	h.t.Cleanup(func() { conn.Close() })
	return conn, answer
}

func (h *terminalHub) open() *websocket.Conn {
	h.t.Helper()
	conn, answer := h.dialTerminal(h.newOpening())
	if conn == nil {
		h.t.Fatalf("no terminal: %d", answer.StatusCode)
	}
	checkEcho(h.t, conn)
	return conn
}

func checkEcho(t *testing.T, conn *websocket.Conn) {
	t.Helper()
	if err := conn.WriteMessage(websocket.BinaryMessage, []byte("\x00ls\r")); err != nil {
		t.Fatal(err)
	}
	if _, got, err := conn.ReadMessage(); err != nil || string(got) != "\x01ls\r" {
		t.Fatalf("the container sends %q, %v", got, err)
	}
}

// checkClosed fails unless the hub closes the terminal with the code.
func checkClosed(t *testing.T, conn *websocket.Conn, want closeReason) {
	t.Helper()
	_, message, err := conn.ReadMessage()
	if !websocket.IsCloseError(err, int(want)) {
		t.Errorf("the terminal has %q, and ends by %v, want %d", message, err, want)
	}
}

// readRefusal returns the status that a refused terminal has, and fails unless the WebSocket ends after it.
func readRefusal(t *testing.T, conn *websocket.Conn) metav1.Status {
	t.Helper()
	_, message, err := conn.ReadMessage()
	var s metav1.Status
	if err != nil || len(message) == 0 || message[0] != statusChannel || json.Unmarshal(message[1:], &s) != nil {
		t.Fatalf("the refusal is %q, %v", message, err)
	}
	if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("after the refusal comes %v", err)
	}
	return s
}

func TestATerminalIsThePersons(t *testing.T) {
	h := newTerminalHub(t)
	o := h.newOpening()
	for name, value := range map[string]string{"Authorization": "Bearer other", "Impersonate-User": "root", "X-Remote-User": "root", "Audit-Id": "x", "X-Forwarded-For": "203.0.113.9", "User-Agent": "browser"} {
		o.header.Set(name, value)
	}
	conn, answer := h.dialTerminal(o)
	if conn == nil || conn.Subprotocol() != "v5.channel.k8s.io" {
		t.Fatalf("no terminal: %d", answer.StatusCode)
	}
	checkEcho(t, conn)
	if len(answer.Cookies()) > 0 || answer.Header.Get("X-Evil") != "" {
		t.Errorf("headers of the member reach the browser: %v", answer.Header)
	}
	got := h.api.reached[0]
	if got.URL.RequestURI() != shellPath+shellQuery || got.Method != "GET" || got.TLS == nil || len(got.TLS.PeerCertificates) > 0 {
		t.Errorf("the API gets %s %s", got.Method, got.URL)
	}
	want := map[string]string{"Authorization": "Bearer " + goodToken, "User-Agent": "browser", "Connection": "Upgrade", "Upgrade": "websocket", "Sec-Websocket-Protocol": "v5.channel.k8s.io, v4.channel.k8s.io", "Sec-Websocket-Version": "13"}
	for name, value := range want {
		if got.Header.Get(name) != value {
			t.Errorf("%s is %q, want %q", name, got.Header.Get(name), value)
		}
	}
	if got.Header.Get("Sec-Websocket-Key") == "" || len(got.Header) != len(want)+1 {
		t.Errorf("the headers are %v", got.Header)
	}
}

// No upgrade but that of a command reaches the API, and none of another page.
func TestUpgradesThatDoNotReachTheAPI(t *testing.T) {
	h := newTerminalHub(t)
	set := func(name, value string) func(*opening) { return func(o *opening) { o.header.Set(name, value) } }
	at := func(path string) func(*opening) { return func(o *opening) { o.path = apiPath + path } }
	offer := func(protocols ...string) func(*opening) { return func(o *opening) { o.protocols = protocols } }
	for name, c := range map[string]struct {
		change func(*opening)
		want   int
	}{
		"no origin":                   {func(o *opening) { o.header.Del("Origin") }, 403},
		"another site":                {set("Origin", "https://evil.example"), 403},
		"the origin null":             {set("Origin", "null"), 403},
		"another port of the host":    {set("Origin", "https://127.0.0.1:1"), 403},
		"an origin without TLS":       {set("Origin", strings.Replace(h.server.URL, "https", "http", 1)), 403},
		"a longer origin":             {set("Origin", h.server.URL+".evil.example"), 403},
		"a page of the same site":     {set("Sec-Fetch-Site", "same-site"), 403},
		"a page of another site":      {set("Sec-Fetch-Site", "cross-site"), 403},
		"a Secret":                    {at("/api/v1/namespaces/shop/secrets/a"), 403},
		"all Secrets":                 {at("/api/v1/secrets"), 403},
		"a watch":                     {at("/api/v1/pods?watch=true"), 403},
		"attach":                      {at("/api/v1/namespaces/shop/pods/web/attach?tty=true"), 403},
		"port-forward":                {at("/api/v1/namespaces/shop/pods/web/portforward"), 403},
		"a pod's page":                {at("/api/v1/namespaces/shop/pods/web/proxy"), 403},
		"a member's API":              {at("/apis/atoll.dev/v1alpha1/clusters/oslo/proxy" + shellPath), 403},
		"exec of a custom kind":       {at("/apis/example.com/v1/namespaces/shop/pods/web/exec?command=sh"), 403},
		"a part after exec":           {at(shellPath + "/x?command=sh"), 403},
		"a path with an empty part":   {at("/api/v1/namespaces/shop/pods//exec?command=sh"), 403},
		"a path that climbs":          {at("/api/v1/namespaces/shop/pods/web/../../secrets/exec?command=sh"), 403},
		"an escaped path that climbs": {at("/api/v1/namespaces/shop/pods/%2e%2e/exec?command=sh"), 403},
		"another parameter":           {at(shellPath + shellQuery + "&fieldManager=x"), 403},
		"a long command":              {at(shellPath + "?command=" + strings.Repeat("x", maxTerminalQuery)), 403},
		"no protocol":                 {offer(), 400},
		"another protocol":            {offer("base64.channel.k8s.io", sessionProtocol+"1"), 400},
		"SPDY in a WebSocket":         {offer("SPDY/3.1+portforward.k8s.io", sessionProtocol+"1"), 400},
		"no session in the protocol":  {offer("v5.channel.k8s.io"), 400},
	} {
		o := h.newOpening()
		c.change(o)
		conn, answer := h.dialTerminal(o)
		if conn != nil || answer.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", name, answer.StatusCode, c.want)
		}
	}
	for name, change := range map[string]func(*http.Request){
		"POST":                  func(r *http.Request) { r.Method = "POST" },
		"no WebSocket":          func(r *http.Request) { r.Header.Del("Upgrade"); r.Header.Del("Connection") },
		"SPDY":                  func(r *http.Request) { r.Header.Set("Upgrade", "SPDY/3.1") },
		"two protocols at once": func(r *http.Request) { r.Header.Add("Upgrade", "h2c") },
	} {
		r := httptest.NewRequest("GET", h.server.URL+apiPath+shellPath+shellQuery, nil)
		for name, values := range h.newOpening().header {
			r.Header[name] = values
		}
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
		r.Header.Set("Sec-Websocket-Protocol", strings.Join(h.newOpening().protocols, ", "))
		change(r)
		if answer := h.serve(r); answer.StatusCode < 400 {
			t.Errorf("%s: %d", name, answer.StatusCode)
		}
	}
	if len(h.api.reached) > 0 {
		t.Errorf("%s reached the API", h.api.reached[0].URL)
	}
}

// A page cannot read an answer that opens no WebSocket, so each refusal comes on the channel of the status.
func TestRefusedTerminalsHaveAReason(t *testing.T) {
	forbidden := `{"kind":"Status","status":"Failure","code":403,"reason":"Forbidden","message":"no exec for you"}`
	for name, c := range map[string]struct {
		change func(h *terminalHub, o *opening)
		want   int32
		text   string
	}{
		"no session": {func(_ *terminalHub, o *opening) { o.header.Del("Cookie") }, 401, "sign in"},
		"another sign-in": {func(_ *terminalHub, o *opening) {
			o.protocols[2] = sessionProtocol + strconv.FormatInt(testStart.Unix(), 10)
		}, 401, "signed in again"},
		"a revoked token": {func(h *terminalHub, _ *opening) {
			h.api.review = func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }
		}, 401, "does not accept this token"},
		"an API that fails": {func(h *terminalHub, _ *opening) {
			h.api.review = func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }
		}, 503, "cannot check tokens"},
		"the API's own refusal": {func(h *terminalHub, _ *opening) {
			h.api.exec = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403); fmt.Fprint(w, forbidden) }
		}, 403, "no exec for you"},
		"an answer that is no Status": {func(h *terminalHub, _ *opening) {
			h.api.exec = func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(500)
				fmt.Fprint(w, strings.Repeat("<html>", maxTerminalRefusal))
			}
		}, 502, "opens no terminal, and answers with 500"},
		"as many of the person as there may be": {func(h *terminalHub, _ *opening) {
			for range maxTerminalsOfPerson {
				h.console.terminals.add(&terminal{user: "aiko"})
			}
		}, 429, "you have 10 terminals open"},
		"as many of all as there may be": {func(h *terminalHub, _ *opening) {
			for i := range maxTerminals {
				h.console.terminals.add(&terminal{user: strconv.Itoa(i)})
			}
		}, 429, "as many terminals are open at this hub"},
		"a person that opens too fast": {func(h *terminalHub, _ *opening) {
			for range personTerminals.Burst {
				h.console.personLimiter.TakeTurn("aiko", testStart)
			}
		}, 429, "too fast; try again in 2s"},
		"a network that opens too fast": {func(h *terminalHub, _ *opening) {
			for range networkTerminals.Burst {
				h.console.terminalLimiter.TakeTurn(networkOf(&http.Request{RemoteAddr: "127.0.0.1:1"}), testStart)
			}
		}, 429, "from this network; try again in 1s"},
	} {
		h := newTerminalHub(t)
		o := h.newOpening()
		c.change(h, o)
		conn, answer := h.dialTerminal(o)
		if conn == nil {
			t.Errorf("%s: %d", name, answer.StatusCode)
			continue
		}
		if s := readRefusal(t, conn); s.Code != c.want || !strings.Contains(s.Message, c.text) || s.Kind != "Status" {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// A terminal frees its place as it ends, and the next one gets it.
func TestAPlaceIsFreed(t *testing.T) {
	h := newTerminalHub(t)
	h.open().Close()
	testwait.UntilNil(t, "the place is free", func(context.Context) error {
		all := h.console.terminals
		all.mu.Lock()
		defer all.mu.Unlock()
		if len(all.all)+len(all.byUser) > 0 {
			return fmt.Errorf("open stay %v, %v", all.all, all.byUser)
		}
		return nil
	})
}

func TestSignOutClosesTerminals(t *testing.T) {
	h := newTerminalHub(t)
	own := h.open()
	h.api.accepts = func(token string) bool { return token == "other" }
	o := h.newOpening()
	o.header.Set("Cookie", h.cookieOf("other", testStart.Add(sessionTime)).String())
	other, _ := h.dialTerminal(o)
	checkEcho(t, other)
	r := httptest.NewRequest("DELETE", h.server.URL+sessionPath, nil)
	r.Header.Set(pageHeader, "1")
	r.Header.Set("Origin", h.server.URL)
	r.AddCookie(h.cookieOf(goodToken, testStart.Add(sessionTime)))
	if answer := h.serve(r); answer.StatusCode != http.StatusNoContent {
		t.Fatalf("sign-out: %d", answer.StatusCode)
	}
	checkClosed(t, own, closeSignedOut)
	checkEcho(t, other)
}

// A sign-in as another person in the same browser ends the session of before, and its terminals.
func TestAnotherSignInClosesTerminals(t *testing.T) {
	h := newTerminalHub(t)
	own := h.open()
	r := httptest.NewRequest("POST", h.server.URL+sessionPath, strings.NewReader(`{"token":"`+goodToken+`"}`))
	r.Header.Set(pageHeader, "1")
	r.Header.Set("Origin", h.server.URL)
	r.Header.Set("Content-Type", "application/json")
	r.AddCookie(h.cookieOf(goodToken, testStart.Add(sessionTime)))
	if answer := h.serve(r); answer.StatusCode != http.StatusOK {
		t.Fatalf("sign-in: %d", answer.StatusCode)
	}
	checkClosed(t, own, closeSignedOut)
}

// A renewal changes the session's token: its terminals stay, and the sign-out of the new token closes them.
func TestARenewalKeepsTerminals(t *testing.T) {
	h := newTerminalHub(t)
	own := h.open()
	h.api.accepts = func(token string) bool { return token == "renewed" }
	r := httptest.NewRequest("POST", h.server.URL+renewalPath, nil)
	r.AddCookie(h.cookieOf(goodToken, testStart.Add(sessionTime)))
	tokens := issuer.Tokens{IDToken: "renewed", Refresh: "r", Expiry: testStart.Add(time.Hour)}
	if _, code := h.console.setTokens(httptest.NewRecorder(), r, tokens, testStart.Add(sessionTime), true); code != http.StatusOK {
		t.Fatalf("the renewal: %d", code)
	}
	h.console.terminals.endSession(goodToken)
	checkEcho(t, own)
	h.console.terminals.endSession("renewed")
	checkClosed(t, own, closeSignedOut)
}

// A renewal without another one after it makes the session shorter: its terminals end with it.
func TestARenewalThatIsTheLastOneEndsTerminals(t *testing.T) {
	h := newTerminalHub(t)
	own := h.open()
	h.clock = testStart.Add(900 * time.Millisecond)
	h.api.accepts = func(token string) bool { return token == "renewed" }
	r := httptest.NewRequest("POST", h.server.URL+renewalPath, nil)
	r.AddCookie(h.cookieOf(goodToken, testStart.Add(sessionTime)))
	if _, code := h.console.setTokens(httptest.NewRecorder(), r, issuer.Tokens{IDToken: "renewed", Expiry: testStart.Add(time.Second)}, testStart.Add(sessionTime), true); code != http.StatusOK {
		t.Fatalf("the renewal: %d", code)
	}
	_ = own.SetReadDeadline(time.Now().Add(testwait.HangLimit))
	checkClosed(t, own, closeSessionOver)
}

// A refused browser has sent its size before it reads the refusal. The hub takes that, and waits for the browser's close.
func TestARefusalWaitsForTheBrowser(t *testing.T) {
	h := newTerminalHub(t)
	o := h.newOpening()
	o.header.Del("Cookie")
	conn, answer := h.dialTerminal(o)
	if conn == nil {
		t.Fatalf("no WebSocket: %d", answer.StatusCode)
	}
	start := time.Now()
	conn.SetCloseHandler(func(int, string) error { return nil }) // it does not answer
	if err := conn.WriteMessage(websocket.BinaryMessage, []byte("\x04{}")); err != nil {
		t.Fatal(err)
	}
	readRefusal(t, conn)
	if _, err := conn.NetConn().Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection ends by %v", err)
	}
	if took := time.Since(start); took < closeTime/2 {
		t.Errorf("the hub closes after %s", took)
	}
}

func TestATerminalEndsWithItsSession(t *testing.T) {
	h := newTerminalHub(t)
	h.clock = testStart.Add(sessionTime - 100*time.Millisecond)
	checkClosed(t, h.open(), closeSessionOver)
}

// A message that a browser would keep whole in its memory ends the terminal.
func TestALongMessageEndsATerminal(t *testing.T) {
	h := newTerminalHub(t)
	conn := h.open()
	if err := conn.WriteMessage(websocket.BinaryMessage, make([]byte, maxMessage)); err != nil {
		t.Fatal(err)
	}
	if _, got, err := conn.ReadMessage(); err != nil || len(got) != maxMessage {
		t.Fatalf("a message of the bound has %d bytes, %v", len(got), err)
	}
	if err := conn.WriteMessage(websocket.BinaryMessage, make([]byte, maxMessage+1)); err != nil {
		t.Fatal(err)
	}
	var closed *websocket.CloseError
	if _, got, err := conn.ReadMessage(); err == nil || errors.As(err, &closed) && closed.Code != websocket.CloseAbnormalClosure {
		t.Errorf("a longer message has %d bytes, %v", len(got), err)
	}
}
