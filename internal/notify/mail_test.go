package notify

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
)

// mailServer is a server of mail that keeps what it takes.
type mailServer struct {
	net.Listener
	config *tls.Config
	// isTLS is true for a server that encrypts from the first byte.
	isTLS bool
	// offers are the lines of its answer to EHLO, before and after STARTTLS.
	plain, encrypted []string
	// replies replaces the reply to a command, by its first word, and to the end of the data, by ".".
	replies map[string]string

	mu    sync.Mutex
	group sync.WaitGroup
	mails []string
	// commands are what clients sent without encryption, and logins the decoded credentials.
	commands, logins []string
}

func newMailServer(t *testing.T, x *target) *mailServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mailServer{
		Listener: l, config: &tls.Config{Certificates: x.TLS.Certificates}, plain: []string{"mail.example.com", "STARTTLS"},
		encrypted: []string{"mail.example.com", "AUTH PLAIN LOGIN", "8BITMIME"}, replies: map[string]string{},
	}
	m.group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			m.group.Go(func() { m.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		m.group.Wait()
	})
	return m
}

// serve answers one client.
func (m *mailServer) serve(conn net.Conn) {
	defer func() { conn.Close() }()
	m.mu.Lock()
	isEncrypted, plain, encrypted, replies := m.isTLS, m.plain, m.encrypted, m.replies
	m.mu.Unlock()
	if isEncrypted {
		conn = tls.Server(conn, m.config)
	}
	lines := bufio.NewReader(conn)
	reply := func(text string) { fmt.Fprintf(conn, "%s\r\n", text) }
	reply("220 mail.example.com ready")
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		if !isEncrypted {
			m.keepText(&m.commands, line)
		}
		word, rest, _ := strings.Cut(line, " ")
		if text, is := replies[word]; is {
			reply(text)
			continue
		}
		switch word {
		case "EHLO":
			offers := plain
			if isEncrypted {
				offers = encrypted
			}
			for i, offer := range offers {
				reply("250" + map[bool]string{true: " ", false: "-"}[i == len(offers)-1] + offer)
			}
		case "STARTTLS":
			reply("220 go ahead")
			conn, isEncrypted = tls.Server(conn, m.config), true
			lines = bufio.NewReader(conn)
		case "AUTH":
			m.authenticateClient(rest, lines, reply)
		case "MAIL", "RCPT":
			m.keepText(&m.mails, line)
			reply("250 ok")
		case "DATA":
			reply("354 go ahead")
			m.readData(lines)
			reply(cmp.Or(replies["."], "250 ok"))
		case "QUIT":
			reply("221 bye")
			return
		default:
			reply("500 unknown")
		}
	}
}

// readData keeps a mail.
func (m *mailServer) readData(lines *bufio.Reader) {
	var text strings.Builder
	for {
		line, err := lines.ReadString('\n')
		if err != nil || line == ".\r\n" {
			break
		}
		text.WriteString(strings.TrimPrefix(line, "."))
	}
	m.keepText(&m.mails, text.String())
}

// authenticateClient takes credentials by PLAIN or LOGIN.
func (m *mailServer) authenticateClient(rest string, lines *bufio.Reader, reply func(string)) {
	decode := func(text string) string {
		raw, _ := base64.StdEncoding.DecodeString(strings.TrimRight(text, "\r\n"))
		return strings.ReplaceAll(string(raw), "\x00", "|")
	}
	mechanism, initial, _ := strings.Cut(rest, " ")
	if mechanism == "PLAIN" {
		m.keepText(&m.logins, "PLAIN "+decode(initial))
		reply("235 welcome")
		return
	}
	login := "LOGIN"
	for _, prompt := range []string{"Username:", "Password:"} {
		reply("334 " + base64.StdEncoding.EncodeToString([]byte(prompt)))
		line, _ := lines.ReadString('\n')
		login += " " + decode(line)
	}
	m.keepText(&m.logins, login)
	reply("235 welcome")
}

func (m *mailServer) keepText(list *[]string, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*list = append(*list, text)
}

// newMailHub returns a hub whose Notification sends mail to a server.
func newMailHub(t *testing.T, x *target, m *mailServer, spec string, secret map[string]string) *hub {
	t.Helper()
	secret["ca.crt"] = string(x.certificatePEM())
	h := newHub(t, newNotification(t, "{target: {email: {host: 127.0.0.1, "+fmt.Sprintf("port: %d, ", m.Addr().(*net.TCPAddr).Port)+spec+"}}, events: [SourceFailed, SourceApplied]}"), secretOf("mail", secret))
	h.runTurn()
	h.failSource("web")
	return h
}

const addresses = "from: hub@example.com, to: [team@example.com, boss@example.com], secretRef: {name: mail}"

// A mail goes through a real session, encrypted before anything but the greeting is sent.
func TestMailsAreSent(t *testing.T) {
	x := newTarget(t)
	for name, c := range map[string]struct {
		spec    string
		secret  map[string]string
		prepare func(m *mailServer)
		login   string
	}{
		"StartTLS and PLAIN": {addresses, map[string]string{"username": "hub", "password": "hush"}, func(*mailServer) {}, "PLAIN |hub|hush"},
		"TLS and LOGIN": {addresses + ", tls: TLS", map[string]string{"username": "hub", "password": "hush"}, func(m *mailServer) {
			m.isTLS, m.encrypted = true, []string{"mail.example.com", "AUTH LOGIN"}
		}, "LOGIN hub hush"},
		"without a login": {addresses, map[string]string{}, func(m *mailServer) { m.encrypted = []string{"mail.example.com"} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMailServer(t, x)
			m.mu.Lock()
			c.prepare(m)
			m.mu.Unlock()
			h := newMailHub(t, x, m, c.spec, c.secret)
			h.runTurn()
			if n := h.getStored(); deliveredOf(n) != "True NothingUnsent" || n.Status.Target != "Email" || n.Status.Sent != 1 {
				t.Fatalf("the status %+v", n.Status)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			if len(m.mails) != 4 || !strings.HasPrefix(m.mails[0], "MAIL FROM:<hub@example.com>") || m.mails[1] != "RCPT TO:<team@example.com>" || m.mails[2] != "RCPT TO:<boss@example.com>" {
				t.Fatalf("the session %q", m.mails)
			}
			for _, want := range []string{"Subject: [Atoll] Source failed: Source shop/web (ContentInvalid)\r\n", "To: <team@example.com>,\r\n <boss@example.com>\r\n", "Auto-Submitted: auto-generated\r\n", "\r\n\r\nSource failed: Source shop/web\r\n"} {
				if !strings.Contains(m.mails[3], want) {
					t.Errorf("no %q in\n%s", want, m.mails[3])
				}
			}
			if strings.Join(m.logins, ", ") != c.login {
				t.Errorf("logins %q, want %q", m.logins, c.login)
			}
			if got := strings.Join(m.commands, ", "); got != map[bool]string{true: "", false: "EHLO atoll-hub, STARTTLS"}[m.isTLS] {
				t.Errorf("without encryption the hub sends %q", got)
			}
		})
	}
}

// Each failure of a session has its reason and its code, and no text of the server.
func TestMailsThatAreNotTaken(t *testing.T) {
	x := newTarget(t)
	for name, c := range map[string]struct {
		spec    string
		secret  map[string]string
		prepare func(h *hub, m *mailServer)
		want    string
	}{
		"no STARTTLS":       {addresses, map[string]string{}, func(_ *hub, m *mailServer) { m.plain = []string{"mail.example.com"} }, "TargetRefused 0: the server of mail does not offer STARTTLS"},
		"a wrong password":  {addresses, map[string]string{"username": "hub", "password": "hush"}, func(_ *hub, m *mailServer) { m.replies["AUTH"] = "535 colours" }, "TargetRefused 535: the server of mail replies with 535: the username or the password"},
		"no mechanism":      {addresses, map[string]string{"username": "hub", "password": "hush"}, func(_ *hub, m *mailServer) { m.encrypted = []string{"mail.example.com", "AUTH GSSAPI"} }, "TargetRefused 0: the server of mail offers neither"},
		"no password":       {addresses, map[string]string{"username": "hub"}, func(*hub, *mailServer) {}, "TargetSecretInvalid 0: the Secret mail has not both keys"},
		"greylisted":        {addresses, map[string]string{}, func(_ *hub, m *mailServer) { m.replies["RCPT"] = "451 colours" }, "TargetBusy 451"},
		"no such recipient": {addresses, map[string]string{}, func(_ *hub, m *mailServer) { m.replies["RCPT"] = "550 colours" }, "TargetRefused 550: the server of mail replies with 550: it refuses the sender or a recipient"},
		"a refused text":    {addresses, map[string]string{}, func(_ *hub, m *mailServer) { m.replies["."] = "554 colours" }, "TargetRefused 554: the server of mail replies with 554: it refuses the message"},
		"endless lines":     {addresses, map[string]string{}, func(_ *hub, m *mailServer) { m.replies["EHLO"] = strings.Repeat("x", 2*maxSMTPBytes) }, "TargetRefused 0: the server of mail sends more than"},
		"no SMTP":           {addresses, map[string]string{}, func(_ *hub, m *mailServer) { m.replies["EHLO"], m.replies["HELO"] = "colours", "colours" }, "TargetUnreachable 0"},
		"loopback":          {addresses, map[string]string{}, func(h *hub, _ *mailServer) { h.n.AllowedNetworks = nil }, "TargetAddressRefused 0: the hub does not dial the loopback address 127.0.0.1"},
		"another CA": {addresses, map[string]string{}, func(h *hub, _ *mailServer) {
			h.editSpec(func(spec *v1alpha1.NotificationSpec) { spec.Target.Email.SecretRef = nil })
		}, "TargetNotVerified 0: the server's certificate cannot be verified"},
		"an address": {strings.Replace(addresses, "boss@", "boss ", 1), map[string]string{}, func(*hub, *mailServer) {}, "TargetRefused 0: an address of the target is not valid"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMailServer(t, x)
			h := newMailHub(t, x, m, c.spec, c.secret)
			m.mu.Lock()
			c.prepare(h, m)
			m.mu.Unlock()
			h.runTurn()
			n := h.getStored()
			f := n.Status.Failure
			if f == nil || !strings.HasPrefix(fmt.Sprintf("%s %d: %s", f.Reason, f.Code, f.Message), c.want) || strings.Contains(fmt.Sprint(n.Status, h.events), "colours") || strings.Contains(fmt.Sprint(n.Status, h.events), "hush") {
				t.Errorf("%+v, want %s", f, c.want)
			}
			if n.Status.Sent != 0 || n.Status.Waiting != 1 {
				t.Errorf("the status %+v", n.Status)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			if strings.Contains(fmt.Sprint(m.commands), "MAIL") || strings.Contains(fmt.Sprint(m.commands), "AUTH") {
				t.Errorf("without encryption the hub sends %q", m.commands)
			}
		})
	}
}

func TestPortsOfMail(t *testing.T) {
	for want, e := range map[int32]v1alpha1.EmailTarget{587: {}, 465: {TLS: v1alpha1.EmailOverTLS}, 25: {Port: 25, TLS: v1alpha1.EmailStartTLS}} {
		if got := e.GetPort(); got != want {
			t.Errorf("%+v: %d", e, got)
		}
	}
}
