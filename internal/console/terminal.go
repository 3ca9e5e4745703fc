package console

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/internal/console/issuer"
)

const (
	// sessionProtocol begins the subprotocol that names the session of the page, as sessionHeader does elsewhere: a WebSocket
	// of a browser has no headers of a script. The end of the session in seconds of Unix time follows.
	sessionProtocol = "session.console.atoll.dev."
	// maxTerminalQuery bounds the query of a terminal: the container, the command and its words.
	maxTerminalQuery = 8 << 10
	// maxTerminalRefusal bounds a refusal of the API that the page receives.
	maxTerminalRefusal = 64 << 10
	// statusChannel is the channel of the API's protocol on which the end of a command is reported.
	statusChannel = 3
	// refusalTime bounds the time in which the page receives why a terminal is not opened.
	refusalTime = 10 * time.Second
)

// The bounds of open terminals of a hub. Requests for them are limited by network before the token is checked, and then by person.
const (
	maxTerminalsOfPerson = 10
	maxTerminals         = 200
)

// terminalProtocols are the protocols of the API for commands, the best first. No other one is passed on.
var terminalProtocols = []string{"v5.channel.k8s.io", "v4.channel.k8s.io"}

// terminalParameters are the parameters of a command in a container.
var terminalParameters = []string{"command", "container", "stdin", "stdout", "stderr", "tty"}

// isTerminal reports whether a request opens a terminal. All other upgrades are no part of the console.
func isTerminal(r *http.Request) bool {
	if r.Header.Get("Upgrade") == "" || !strings.HasPrefix(r.URL.Path, apiPath+"/") {
		return false
	}
	inner := newInnerRequest(r)
	info, err := requestInfos.NewRequestInfo(inner)
	return err == nil && isPlainPath(inner.URL.Path) && inner.Method == http.MethodGet && isExec(info)
}

// isExec reports whether a request is for a command in a container of one pod.
func isExec(info *request.RequestInfo) bool {
	return info.Verb == "get" && info.APIPrefix == "api" && info.APIGroup == "" && info.Namespace != "" && info.Resource == "pods" && info.Name != "" &&
		info.Subresource == "exec" && len(info.Parts) == 3
}

// serveTerminal passes a WebSocket of the page on to the API, which runs a command in a container as the person of the session.
func (c *console) serveTerminal(w http.ResponseWriter, r *http.Request) {
	if !isOwnOrigin(r) || !isOwnSite(r) {
		writeRefusal(w, http.StatusForbidden, metav1.StatusReasonForbidden, "only the console's own page opens terminals here; clients use the API of the hub; a proxy before the hub must keep the header Host")
		return
	}
	offered, name := readProtocols(r)
	if !websocket.IsWebSocketUpgrade(r) || len(r.Header.Values("Upgrade")) != 1 || len(offered) == 0 || name == "" {
		writeRefusal(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "a terminal is a WebSocket of the protocol "+terminalProtocols[0]+", which names the session of its page")
		return
	}
	if !isTerminalQuery(r.URL) {
		writeRefusal(w, http.StatusForbidden, metav1.StatusReasonForbidden, "a terminal has a container and a command, and no other parameters")
		return
	}
	s, ok := c.sessionOf(r)
	switch {
	case !ok:
		refuseTerminal(w, r, newRefusal(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, noSessionMessage))
		return
	case name != s.pageName():
		refuseTerminal(w, r, newRefusal(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, otherSessionMessage))
		return
	}
	t, refusal := c.openTerminal(r, s)
	if refusal != nil {
		refuseTerminal(w, r, *refusal)
		return
	}
	c.runTerminal(w, r, s, t, offered)
}

// readProtocols returns the protocols of terminals that a request offers, and the name of the session that it states.
func readProtocols(r *http.Request) (offered []string, name string) {
	for _, p := range websocket.Subprotocols(r) {
		if text, ok := strings.CutPrefix(p, sessionProtocol); ok {
			name = text
		} else if slices.Contains(terminalProtocols, p) {
			offered = append(offered, p)
		}
	}
	return offered, name
}

func isTerminalQuery(u *url.URL) bool {
	if len(u.RawQuery) > maxTerminalQuery {
		return false
	}
	q, err := url.ParseQuery(u.RawQuery)
	for name := range q {
		if !slices.Contains(terminalParameters, name) {
			return false
		}
	}
	return err == nil
}

// openTerminal has the API check the token, and takes a place for a terminal of the person.
func (c *console) openTerminal(r *http.Request, s session) (*terminal, *metav1.Status) {
	if wait, ok := c.terminalLimiter.TakeTurn(networkOf(r), c.now()); !ok {
		return nil, tooManyTerminals("too many terminals are opened from this network", wait)
	}
	p, code := c.reviewCredential(r, s)
	switch code {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		refusal := newRefusal(code, metav1.StatusReasonUnauthorized, "the hub does not accept this token: it may be expired or revoked")
		return nil, &refusal
	default:
		refusal := newRefusal(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, noReviewMessage)
		return nil, &refusal
	}
	if wait, ok := c.personLimiter.TakeTurn(p.User, c.now()); !ok {
		return nil, tooManyTerminals("you open terminals too fast", wait)
	}
	t := &terminal{user: p.User, credential: issuer.HashToken(s.encodeCredential())}
	t.over = time.AfterFunc(s.until.Sub(c.now()), func() { t.endTerminal(closeSessionOver) })
	if problem := c.terminals.add(t); problem != "" {
		t.over.Stop()
		return nil, tooManyTerminals(problem, 0)
	}
	return t, nil
}

// runTerminal serves a terminal until its command, its session or its connection ends.
func (c *console) runTerminal(w http.ResponseWriter, r *http.Request, s session, t *terminal, offered []string) {
	defer t.over.Stop() // after it is out of the table, by which a renewal resets it
	defer c.terminals.remove(t)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	inner := newInnerRequest(r).WithContext(ctx)
	inner.Header.Del("Accept-Encoding")
	inner.Header.Set("Connection", "Upgrade")
	inner.Header.Set("Upgrade", "websocket")
	inner.Header.Set("Sec-Websocket-Protocol", strings.Join(offered, ", "))
	for _, name := range []string{"Sec-Websocket-Key", "Sec-Websocket-Version"} {
		inner.Header.Set(name, r.Header.Get(name))
	}
	actAs(inner, s)
	answer := &terminalWriter{ResponseWriter: w, ctx: ctx, terminal: t, header: http.Header{}, code: http.StatusOK}
	t.setCancel(cancel)
	c.api.ServeHTTP(answer, inner)
	if answer.hijacked {
		return
	}
	refuseTerminal(w, r, answer.readRefusal())
}

// refuseTerminal opens the WebSocket, reports on the channel of the API's protocol why there is no terminal, and closes it. A page
// cannot read an answer that opens none.
func refuseTerminal(w http.ResponseWriter, r *http.Request, refusal metav1.Status) {
	offered, _ := readProtocols(r)
	// The origin is checked. The header is a new one: cookies of an answer of the API are none of the console.
	upgrader := websocket.Upgrader{Subprotocols: offered, HandshakeTimeout: refusalTime, ReadBufferSize: 1 << 10, WriteBufferSize: 1 << 10, CheckOrigin: isOwnOrigin}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // the answer is written
	}
	defer conn.Close()
	body, _ := json.Marshal(refusal) // a Status always encodes
	_ = conn.SetWriteDeadline(time.Now().Add(refusalTime))
	if conn.WriteMessage(websocket.BinaryMessage, append([]byte{statusChannel}, body...)) != nil ||
		conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")) != nil {
		return // the browser has gone
	}
	// The page sends its size at once. A close before that is read would be a reset, by which some systems drop the refusal.
	_ = conn.SetReadDeadline(time.Now().Add(closeTime))
	conn.SetReadLimit(maxTerminalQuery)
	for err == nil {
		_, _, err = conn.NextReader()
	}
}

func tooManyTerminals(problem string, wait time.Duration) *metav1.Status {
	if wait > 0 {
		problem += "; try again in " + max(wait, time.Second).Round(time.Second).String()
	}
	s := newRefusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, problem)
	return &s
}

// terminal is an open terminal, or one that is being opened.
type terminal struct {
	user string
	// credential is the hash of the session's credential. The table guards it, because a renewal changes it.
	credential string
	// over ends the terminal with its session.
	over *time.Timer

	mu      sync.Mutex
	cancel  context.CancelFunc
	conn    *terminalConn
	isEnded bool
}

// setCancel sets what ends the request.
func (t *terminal) setCancel(cancel context.CancelFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cancel = cancel
	if t.isEnded {
		cancel()
	}
}

// setConn sets the connection of the browser. It closes the connection when the terminal has ended before.
func (t *terminal) setConn(conn *terminalConn) {
	t.mu.Lock()
	t.conn = conn
	isEnded := t.isEnded
	t.mu.Unlock()
	if isEnded {
		conn.endConn(closeSessionOver)
	}
}

// endTerminal closes the terminal, and reports the reason to the page.
func (t *terminal) endTerminal(why closeReason) {
	t.mu.Lock()
	t.isEnded = true
	conn, cancel := t.conn, t.cancel
	t.mu.Unlock()
	if conn != nil {
		conn.endConn(why)
	}
	if cancel != nil {
		cancel()
	}
}

// terminals is the table of a hub's terminals.
type terminals struct {
	mu     sync.Mutex
	all    map[*terminal]struct{}
	byUser map[string]int
}

func newTerminals() *terminals {
	return &terminals{all: map[*terminal]struct{}{}, byUser: map[string]int{}}
}

// add takes a place; where there is none, it returns why.
func (t *terminals) add(one *terminal) (problem string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.byUser[one.user] >= maxTerminalsOfPerson:
		return "you have " + strconv.Itoa(maxTerminalsOfPerson) + " terminals open at this hub, as many as one person may; close some of them"
	case len(t.all) >= maxTerminals:
		return "as many terminals are open at this hub as there may be; try again later, or use kubectl exec"
	}
	t.all[one] = struct{}{}
	t.byUser[one.user]++
	return ""
}

func (t *terminals) remove(one *terminal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, one)
	if t.byUser[one.user]--; t.byUser[one.user] == 0 {
		delete(t.byUser, one.user)
	}
}

// renewSession keeps the terminals of a session, whose credential is another one from now on. They end with it after the rest of its time.
func (t *terminals) renewSession(from, to string, rest time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from, to = issuer.HashToken(from), issuer.HashToken(to)
	for one := range t.all {
		if one.credential == from {
			one.credential = to
			one.over.Reset(rest)
		}
	}
}

// endSession closes the terminals of a session.
func (t *terminals) endSession(credential string) {
	hash := issuer.HashToken(credential)
	t.mu.Lock()
	var ended []*terminal
	for one := range t.all {
		if one.credential == hash {
			ended = append(ended, one)
		}
	}
	t.mu.Unlock()
	for _, one := range ended {
		go one.endTerminal(closeSignedOut) // each writes to a browser that may not read
	}
}

// endTerminals closes the terminals of the session that a request ends.
func (c *console) endTerminals(r *http.Request) {
	if s, ok := c.sessionOf(r); ok {
		c.terminals.endSession(s.encodeCredential())
	}
}

// terminalWriter is what the API answers to. It hands the connection over with its bounds, and keeps a refusal.
type terminalWriter struct {
	http.ResponseWriter
	ctx      context.Context
	terminal *terminal
	header   http.Header
	code     int
	body     []byte
	hijacked bool
}

func (w *terminalWriter) Header() http.Header  { return w.header }
func (w *terminalWriter) WriteHeader(code int) { w.code = code }
func (w *terminalWriter) Flush()               {}

// CloseNotify makes the API's wrappers of writers keep Hijack. The context of the request reports the end.
func (w *terminalWriter) CloseNotify() <-chan bool { return nil }

func (w *terminalWriter) Write(b []byte) (int, error) {
	if room := maxTerminalRefusal - len(w.body); room > 0 {
		w.body = append(w.body, b[:min(len(b), room)]...)
	}
	return len(b), nil
}

// Hijack hands the connection of the browser over.
func (w *terminalWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.hijacked = true
	own := newTerminalConn(w.ctx, conn, w.terminal.endTerminal)
	w.terminal.setConn(own)
	return own, bufio.NewReadWriter(buffered.Reader, bufio.NewWriter(own)), nil
}

// readRefusal returns what the API answered in place of a terminal.
func (w *terminalWriter) readRefusal() metav1.Status {
	var s metav1.Status
	if json.Unmarshal(w.body, &s) == nil && s.Kind == "Status" && s.Status == metav1.StatusFailure {
		return s
	}
	return newRefusal(http.StatusBadGateway, metav1.StatusReasonInternalError, "the API opens no terminal, and answers with "+strconv.Itoa(w.code)+" "+http.StatusText(w.code))
}
