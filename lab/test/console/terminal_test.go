package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"atoll.dev/atoll/internal/testwait"
)

const shellUser = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: shell, namespace: $NS}
rules:
- {apiGroups: [""], resources: [pods/exec], verbs: [create, get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: shell, namespace: $NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: shell}
subjects: [{kind: ServiceAccount, name: team, namespace: $NS}]
`

// hostileOutput would write the clipboard, rename the page, link elsewhere, request the settings and the title of the terminal
// as input, colour by markup, and never end its line.
var hostileOutput = "\x1b]52;c;aGFybWVk\a\x1b]0;harmed\a\x1b]2;harmed\x1b\\\x1b]8;;javascript:window.harmed=1\x1b\\click\x1b]8;;\x1b\\" +
	"\x1bP$q\"p\x1b\\\x1b[21t\x1b[38;2;1;2;3;48;2;200;100;50mtrue colours\x1b[0m<img src=x onerror=window.harmed=1>\u202egnp" +
	strings.Repeat("x", 10<<20) + "\x1b[2J\x1b[H"

// fakeShell is the shell of a container: it repeats what is typed, and knows a few words.
type fakeShell struct {
	open atomic.Int64
	// replies are what it received that no person typed.
	replies atomic.Int64
}

// ExecInContainer runs the shell until it exits, or its input ends.
func (s *fakeShell) ExecInContainer(_ context.Context, name, _, container string, command []string, in io.Reader, out, _ io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if command[0] != "sh" {
		return fmt.Errorf("exec: %q: executable file not found in $PATH", command[0])
	}
	s.open.Add(1)
	defer s.open.Add(-1)
	var size atomic.Value
	size.Store(remotecommand.TerminalSize{})
	go func() {
		for next := range resize {
			size.Store(next)
		}
	}()
	fmt.Fprintf(out, "%s of %s\r\n$ ", container, name)
	keys := bufio.NewReader(in)
	for line := ""; ; {
		key, err := keys.ReadByte()
		if err != nil {
			return nil
		}
		switch {
		case key == 0x0b: // Ctrl-K
			fmt.Fprint(out, "<ctrl-k>")
			continue
		case key == 0x1b:
			s.replies.Add(1)
			continue
		case key != '\r':
			line += string(key)
			_, _ = out.Write([]byte{key})
			continue
		}
		switch line {
		case "size":
			at := size.Load().(remotecommand.TerminalSize)
			fmt.Fprintf(out, "\r\nsize %dx%d\r\n", at.Width, at.Height)
		case "hostile":
			fmt.Fprint(out, hostileOutput+"done\r\n")
		case "exit":
			return nil
		case "exit 3":
			return utilexec.CodeExitError{Err: errors.New("exited"), Code: 3}
		}
		line = ""
		fmt.Fprint(out, "\r\n$ ")
	}
}

func (s *fakeShell) serve(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/exec/"), "/")
	options, err := remotecommand.NewOptions(r)
	if err != nil || len(parts) != 3 {
		http.NotFound(w, r)
		return
	}
	remotecommand.ServeExec(w, r, s, parts[1], "", parts[2], r.URL.Query()["command"], options, 10*time.Minute, time.Minute, remotecommand.SupportedStreamingProtocols)
}

// readTerminal returns the text on the screen of the terminal.
func (p *page) readTerminal() string {
	p.t.Helper()
	return p.evaluateScript(`[...document.querySelectorAll(".terminal-box .xterm-rows > div")].map((r) => r.textContent.trimEnd()).join("\n").trim()`)
}

func (p *page) awaitTerminal(what string, parts ...string) {
	p.t.Helper()
	testwait.UntilNil(p.t, what, func(context.Context) error {
		text := p.readTerminal()
		for _, part := range parts {
			if !strings.Contains(text, part) {
				return fmt.Errorf("no %q in:\n%.2000s\n\n%.2000s", part, text, p.readText())
			}
		}
		return nil
	})
}

// typeKeys types into what has the focus. As with a keyboard, a key that the page takes is no character after it.
func (p *page) typeKeys(text string) {
	p.t.Helper()
	p.run(chromedp.KeyEvent(text, func(k *input.DispatchKeyEventParams) {
		switch k.Type {
		case kb.KeyDown:
			k.Text = k.Key
			if k.Key == "Enter" {
				k.Text = "\r"
			}
		case kb.KeyChar:
			k.Modifiers |= int64(chromedp.ModifierAlt) // leaves out the character, which the key makes
		}
	}))
}

// pressKey presses one key with modifiers, as the page's script sees it.
func (p *page) pressKey(modifiers, key string, code int) {
	p.t.Helper()
	p.evaluateScript(fmt.Sprintf(`document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: %q, keyCode: %d, %s, bubbles: true, cancelable: true})); ""`, key, code, modifiers))
}

// TestATerminalOpensInAContainer opens a shell in a member's container: as the person, with the size of the page, without harm by its
// output, and with a reason for each end.
func TestATerminalOpensInAContainer(t *testing.T) {
	token := prepareTeam(t, "term", shellUser)
	runKubectl(t, fillTemplate(loggedDeployment+"---"+logReader, "$NS", "term"), "apply", "-f", "-")
	bundleOf(t, "term")
	kubelet := newFakeKubelet(t)
	kubelet.serveNodes(t)
	pod := runKubectl(t, "", "get", "pods", "-n", "term", "-l", "atoll.dev/cluster=member1", "-o", "jsonpath={.items[0].metadata.name}")
	p := openPage(t)
	p.signIn(token)
	p.openView("pods", "term", pod)
	p.run(chromedp.WaitVisible(chromedp.CSS("a.terminal-link")))
	p.run(chromedp.Click(chromedp.CSS("a.terminal-link")))
	p.awaitText("the choices, and no shell yet", "Nothing runs yet.", "kubectl exec -it -n term "+pod+" -c web -- sh")
	if n := kubelet.shell.open.Load(); n != 0 {
		t.Errorf("%d shells run before the button is pressed", n)
	}
	p.clickButton("terminal", "Open")
	p.awaitText("the refusal of the member's RBAC", `User "atoll:serviceaccount:term:team" cannot get resource "pods/exec"`, "refused by the cluster's own RBAC")
	runKubectlAt(t, world.lab.KubeconfigPath("member1"), "", "create", "rolebinding", "shell", "-n", "term", "--clusterrole", "admin", "--user", "atoll:serviceaccount:term:team")
	testwait.UntilNil(t, "the shell is open", func(context.Context) error {
		p.evaluateScript(`{ const b = document.querySelector("#terminal button[type=submit]"); if (b.innerText === "Open again") b.click(); } ""`)
		if text := p.readTerminal(); !strings.Contains(text, "web of web-") {
			return fmt.Errorf("the screen is %q: %s", text, p.readText())
		}
		return nil
	})
	p.typeKeys("size\r")
	p.awaitTerminal("the size of the screen", "$ size", "size 1", "x")
	before := p.readTerminal()
	p.evaluateScript(`document.querySelector(".terminal-box").style.width = "420px"; ""`)
	testwait.UntilNil(t, "another size", func(context.Context) error {
		p.typeKeys("size\r")
		if text := p.readTerminal(); !strings.Contains(strings.TrimPrefix(text, before), "\nsize 5") {
			return errors.New(text)
		}
		return nil
	})
	p.pressKey("ctrlKey: true", "k", 75)
	p.awaitTerminal("Ctrl-K is the shell's", "<ctrl-k>")
	if open := p.evaluateScript(`String(document.querySelectorAll(".palette").length)`); open != "0" {
		t.Error("Ctrl-K in the terminal opens the palette")
	}
	p.pressKey("ctrlKey: true, shiftKey: true", "Enter", 13)
	if at := p.evaluateScript(`document.activeElement.innerText`); at != "Close" {
		t.Errorf("the key that leaves the terminal leads to %q", at)
	}
	p.run(chromedp.Focus(chromedp.CSS(".terminal-box textarea")))

	p.checkHostileOutput(kubelet)
	p.checkEnds()
	p.openView("waiting")
	testwait.UntilNil(t, "the shell ends with the view", func(context.Context) error {
		if n := kubelet.shell.open.Load(); n != 0 {
			return fmt.Errorf("%d shells are open", n)
		}
		return nil
	})
	p.checkUnharmed()
}

// checkHostileOutput has the shell print hostile output.
func (p *page) checkHostileOutput(kubelet *fakeKubelet) {
	p.t.Helper()
	title := p.evaluateScript(`document.title`)
	p.typeKeys("hostile\r")
	p.awaitTerminal("the end of the hostile output", "done")
	if got := p.evaluateScript(`document.title`); got != title {
		p.t.Errorf("the container renames the page to %q", got)
	}
	if found := p.evaluateScript(`String(document.querySelectorAll(".terminal-box img, .terminal-box a, .terminal-box script").length)`); found != "0" {
		p.t.Errorf("%s elements are made of the output", found)
	}
	if n := kubelet.shell.replies.Load(); n != 0 {
		p.t.Errorf("the terminal sends %d replies that no person typed", n)
	}
	p.checkUnharmed()
}

// checkEnds ends shells in each way, and leaves one open.
func (p *page) checkEnds() {
	p.t.Helper()
	p.typeKeys("exit\r")
	p.awaitText("the end with the code", "The shell ended with code 0.", "Open again")
	p.clickButton("terminal", "Open again")
	p.awaitTerminal("another shell", "web of web-")
	p.typeKeys("exit 3\r")
	p.awaitText("the end with another code", "The shell ended with code 3.")
	p.evaluateScript(`{ const box = document.querySelector("#terminal-command"); box.value = "bash"; box.dispatchEvent(new Event("input", {bubbles: true})); } ""`)
	p.clickButton("terminal", "Open again")
	p.awaitText("a container without the command", "The container has no bash.")

	p.evaluateScript(`{ const box = document.querySelector("#terminal-command"); box.value = "sh"; box.dispatchEvent(new Event("input", {bubbles: true})); } ""`)
	p.clickButton("terminal", "Open again")
	p.awaitTerminal("the last shell", "web of web-")
}

// TestATerminalNeedsItsRight: a person without the right sees a button that names it, and a script of the page opens nothing either.
func TestATerminalNeedsItsRight(t *testing.T) {
	prepareTeam(t, "noterm", "")
	runKubectl(t, fillTemplate(loggedDeployment+"---"+logReader, "$NS", "noterm"), "apply", "-f", "-")
	token := runKubectl(t, "", "create", "token", "reader", "-n", "noterm", "--duration", "1h")
	bundleOf(t, "noterm")
	pod := runKubectl(t, "", "get", "pods", "-n", "noterm", "-l", "atoll.dev/cluster=member1", "-o", "jsonpath={.items[0].metadata.name}")
	p := openPage(t)
	p.signIn(token)
	p.openView("pods", "noterm", pod)
	testwait.UntilNil(t, "the button names the right", func(context.Context) error {
		got := p.evaluateScript(`{ const b = [...document.querySelectorAll("header button:disabled")].find((b) => b.innerText === "Terminal"); b ? b.title : document.body.innerText }`)
		if got != "You lack the right: create pods/exec in noterm" {
			return errors.New(got)
		}
		return nil
	})
	session := p.evaluateScript(`fetch("/console/session", {headers: {"X-Atoll-Console": "1"}}).then((r) => r.json()).then((s) => s.session)`)
	got := p.evaluateScript(fmt.Sprintf(`new Promise((done) => {
		const socket = new WebSocket("wss://" + location.host + "/console/api/api/v1/namespaces/noterm/pods/%s/exec?command=sh&stdin=true&stdout=true&tty=true", ["v5.channel.k8s.io", "session.console.atoll.dev.%s"]);
		socket.binaryType = "arraybuffer"; // a Blob is read later than the close
		socket.onmessage = (e) => done(new TextDecoder().decode(e.data));
		socket.onclose = (e) => done("closed " + e.code);
	})`, pod, session))
	if !strings.HasPrefix(got, "\x03") || !strings.Contains(got, `"reason":"Forbidden"`) || !strings.Contains(got, "pods/exec") {
		t.Errorf("the WebSocket of a person without the right has %q", got)
	}
	p.checkUnharmed()
}
