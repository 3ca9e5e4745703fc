package console

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab"
)

// labVariable names the directory of a running lab with two members. The tests leave it running: for authors of
// tests.
const labVariable = "ATOLL_CONSOLE_LAB"

// world is the lab that the tests share.
var world struct {
	lab *lab.Lab
	hub string     // the address of the hub's API
	dex *dexServer // nil: the lab is another process's
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if findBrowser() == "" {
		return m.Run() // each test is skipped
	}
	end, err := openLab()
	if end != nil {
		defer end()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bring the lab up:", err)
		return 1
	}
	config, err := clientcmd.BuildConfigFromFlags("", world.lab.KubeconfigPath("hub"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "read the hub's kubeconfig:", err)
		return 1
	}
	world.hub = config.Host
	return m.Run()
}

// openLab opens the lab that the environment names, or brings one up. The function that ends it may be set with an error, too.
func openLab() (func(), error) {
	var err error
	if dir := os.Getenv(labVariable); dir != "" {
		world.lab, err = lab.OpenExisting(dir)
		return nil, err
	}
	if os.Getenv(lab.BinDirVariable) == "" {
		return nil, fmt.Errorf("these tests run built binaries: `make build`, then %s=$PWD/bin go test -C lab ./test/console", lab.BinDirVariable)
	}
	dir, err := os.MkdirTemp("", "atoll-console-")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	remove := func() {
		stop()
		os.RemoveAll(dir)
	}
	if world.dex, err = startDex(ctx); err != nil {
		return remove, err
	}
	hubArgs, err := world.dex.hubArgs(dir)
	if err != nil {
		return remove, err
	}
	world.lab, err = lab.BringUp(ctx, lab.Options{Dir: filepath.Join(dir, "lab"), Members: 2, EndsWithStarter: true, HubArgs: hubArgs})
	return func() {
		if world.lab != nil {
			if err := world.lab.StopAll(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, "end the lab:", err)
			}
		}
		world.dex.server.Close()
		remove()
	}, err
}

// findBrowser returns the path of chromium; "": there is none.
func findBrowser() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// runKubectl runs kubectl against the hub as its administrator, and returns what it prints.
func runKubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	return runKubectlAt(t, world.lab.KubeconfigPath("hub"), stdin, args...)
}

// runKubectlAt runs kubectl as the administrator of a kubeconfig.
func runKubectlAt(t *testing.T, kubeconfig, stdin string, args ...string) string {
	t.Helper()
	command := filepath.Join(os.Getenv(lab.BinDirVariable), "atoll-lab")
	cmd := exec.CommandContext(t.Context(), command, append([]string{"kubectl", "--kubeconfig", kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// page is one browser with one open page, and no other state.
type page struct {
	t   *testing.T
	ctx context.Context
}

// openPage starts a browser and opens the console.
func openPage(t *testing.T) *page {
	t.Helper()
	return openPageAt(t, world.hub+"/console/")
}

// openPageAt starts a browser and opens an address.
func openPageAt(t *testing.T, address string) *page {
	t.Helper()
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(findBrowser()), chromedp.NoSandbox, chromedp.IgnoreCertErrors, chromedp.WindowSize(1360, 860)}
	allocated, stop := chromedp.NewExecAllocator(t.Context(), slices.Concat(chromedp.DefaultExecAllocatorOptions[:], options)...)
	ctx, closePage := chromedp.NewContext(allocated)
	t.Cleanup(func() { closePage(); stop() })
	p := &page{t: t, ctx: ctx}
	p.run(chromedp.Navigate(address))
	return p
}

func (p *page) run(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// startScript marks the document, so that another load shows, and records errors of the page.
const startScript = `window.sameDocument = true; window.problems = []; addEventListener("error", (e) => problems.push(e.message));
	addEventListener("unhandledrejection", (e) => problems.push(String(e.reason))); addEventListener("securitypolicyviolation", (e) => problems.push(e.violatedDirective)); ""`

// pasteToken pastes a token into the sign-in page, and presses its button.
func (p *page) pasteToken(token string) {
	p.t.Helper()
	p.run(chromedp.WaitVisible(chromedp.CSS("#token")))
	p.evaluateScript(fmt.Sprintf(`{ const box = document.querySelector("#token"); box.value = %q; box.dispatchEvent(new Event("input", {bubbles: true})); } ""`, token))
	p.run(chromedp.Click(chromedp.CSS("button[type=submit]:enabled")))
}

// signIn pastes a token and signs in.
func (p *page) signIn(token string) {
	p.t.Helper()
	p.pasteToken(token)
	p.run(chromedp.WaitVisible(chromedp.CSS(".shell")))
	p.evaluateScript(startScript)
}

// openView goes to a view by the console's own navigation.
func (p *page) openView(path ...string) {
	p.t.Helper()
	for i := range path {
		path[i] = url.PathEscape(path[i])
	}
	p.openAddress("/console/" + strings.Join(path, "/"))
}

// openAddress goes to an address as a step back in the browser's history does.
func (p *page) openAddress(address string) {
	p.t.Helper()
	p.evaluateScript(fmt.Sprintf(`history.pushState(null, "", %q); dispatchEvent(new PopStateEvent("popstate")); ""`, address))
}

// awaitText waits until the text of the page has all parts.
func (p *page) awaitText(what string, parts ...string) {
	p.t.Helper()
	testwait.UntilNil(p.t, what, func(context.Context) error {
		text := p.readText()
		for _, part := range parts {
			if !strings.Contains(text, part) {
				return fmt.Errorf("no %q in:\n%s", part, text)
			}
		}
		return nil
	})
}

// readText returns the text that the page shows.
func (p *page) readText() string {
	p.t.Helper()
	return p.evaluateScript(`document.body.innerText`)
}

// evaluateScript returns a text that the script returns, also as a promise.
func (p *page) evaluateScript(script string) string {
	p.t.Helper()
	text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](script, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatal(err)
	}
	return text
}

// checkUnharmed fails if the page was loaded again, threw an error, or ran what it shows.
func (p *page) checkUnharmed() {
	p.t.Helper()
	if got := p.evaluateScript(`JSON.stringify([window.sameDocument, window.harmed ?? "unharmed", window.problems])`); got != `[true,"unharmed",[]]` {
		p.t.Errorf("the same document, harm, and errors: %s", got)
	}
}
