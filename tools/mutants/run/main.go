// Command run draws mutants of the packages that decide and runs the tests of `make test-short`
// against each. It prints those that no test fails on. `make mutants` runs it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/tools/mutants"
)

// deciding is the packages that decide, under internal/.
const deciding = "admission agent/apply agent/ownership binder bundlecontent bundlestatus decommission delivery/payloads expr fleetview kinds manifest overrides placer policymatch preview preview/explain preview/offline restore restore/controller rollout schedule session trust trust/handshake trust/person trust/standing userfields"

// kinds of test/packages.sh that make test-short runs.
var kinds = []string{"race", "pure", "decides"}

// packageInfo is what `go list` prints of a package.
type packageInfo struct {
	Dir, ImportPath, Name              string
	GoFiles                            []string
	Imports, TestImports, XTestImports []string
}

// mutationRun is the mutated tree.
type mutationRun struct {
	root, work, module string
	packages           map[string]packageInfo // by path below internal/
	tested             []string               // those that make test-short tests
	sources            map[string][]byte
	drawn              []mutants.Mutant
	owner              map[string]string // the package of a file
	binaries           map[string]testBinary
	own                bool // run a package's own tests alone
	log                io.Writer
}

// testBinary is a package's tests, with all drawn mutants compiled in.
type testBinary struct {
	file  string // empty: the package has no tests, or they fail without a mutant
	limit time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	root := flag.String("root", "..", "directory of the source")
	n := flag.Int("n", 300, "how many mutants to draw")
	seed := flag.Uint64("seed", 1, "seed of the draw")
	own := flag.Bool("own", false, "run only the tests of a mutant's own package, which is faster and finds less")
	only := flag.String("packages", deciding, "packages below internal/, by spaces")
	flag.Parse()
	survived, drawn, err := runMutants(ctx, *root, strings.Fields(*only), *own, *n, *seed)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if survived*10 > drawn {
		os.Exit(1)
	}
}

func runMutants(ctx context.Context, root string, names []string, own bool, n int, seed uint64) (survived, drawn int, err error) {
	b := &mutationRun{own: own, log: os.Stdout, packages: map[string]packageInfo{}, sources: map[string][]byte{}, owner: map[string]string{}, binaries: map[string]testBinary{}}
	if b.root, err = filepath.Abs(root); err != nil {
		return 0, 0, err
	}
	if b.work, err = os.MkdirTemp("", "atoll-mutants-"); err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(b.work)
	if err := b.listPackages(ctx); err != nil {
		return 0, 0, err
	}
	if err := b.drawMutants(names, n, seed); err != nil {
		return 0, 0, err
	}
	if err := b.compileMutants(ctx); err != nil {
		return 0, 0, err
	}
	return b.testAllMutants(ctx), len(b.drawn), ctx.Err()
}

func (b *mutationRun) listPackages(ctx context.Context) error {
	out, err := b.newCommand(ctx, "go", "list", "-json=Dir,ImportPath,Name,GoFiles,Imports,TestImports,XTestImports", "./internal/...").Output()
	if err != nil {
		return fmt.Errorf("list packages: %w", err)
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p packageInfo
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("list packages: %w", err)
		}
		module, below, _ := strings.Cut(p.ImportPath, "/internal/")
		b.module, b.packages[below] = module, p
	}
	out, err = b.newCommand(ctx, filepath.Join("test", "packages.sh"), kinds...).Output()
	if err != nil {
		return fmt.Errorf("list the tested packages: %w", err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		if _, below, ok := strings.Cut(path, "/internal/"); ok {
			b.tested = append(b.tested, below)
		}
	}
	return nil
}

func (b *mutationRun) drawMutants(names []string, n int, seed uint64) error {
	var all []mutants.Mutant
	for _, name := range slices.Sorted(slices.Values(names)) {
		p, ok := b.packages[name]
		if !ok {
			return fmt.Errorf("there is no package internal/%s", name)
		}
		for _, base := range p.GoFiles {
			file := filepath.Join(p.Dir, base)
			src, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			found, err := mutants.FindMutants(file, src)
			if err != nil {
				return err
			}
			all, b.sources[file], b.owner[file] = append(all, found...), src, name
		}
	}
	b.drawn = mutants.Draw(all, n, seed)
	fmt.Fprintf(b.log, "%d of %d mutants, seed %d\n", len(b.drawn), len(all), seed)
	return nil
}

// compileMutants writes the overlay and drops mutants that are no Go, until all packages compile.
func (b *mutationRun) compileMutants(ctx context.Context) error {
	at := regexp.MustCompile(`(?m)^(\S+\.go):(\d+):`)
	for {
		targets, origin, err := b.writeOverlay()
		if err != nil {
			return err
		}
		out, err := b.newCommand(ctx, "go", append([]string{"build", "-overlay", b.overlayFile(), "-gcflags=-e"}, targets...)...).CombinedOutput()
		if err == nil {
			return nil
		}
		wrong := map[string]bool{}
		for _, m := range at.FindAllStringSubmatch(string(out), -1) {
			wrong[origin[filepath.Base(m[1])]+":"+m[2]] = true
		}
		before := len(b.drawn)
		b.drawn = slices.DeleteFunc(b.drawn, func(m mutants.Mutant) bool { return m.SpansAny(b.sources[m.File], wrong) })
		if len(b.drawn) == before {
			return fmt.Errorf("build the mutants: %w: %s", err, out)
		}
		fmt.Fprintf(b.log, "%d mutants are no Go and dropped\n", before-len(b.drawn))
	}
}

func (b *mutationRun) overlayFile() string { return filepath.Join(b.work, "overlay.json") }

// writeOverlay returns the packages with mutants, and the source of each file that it writes: the
// compiler reports errors by the name of the written file.
func (b *mutationRun) writeOverlay() (targets []string, origin map[string]string, err error) {
	byFile := map[string][]mutants.Mutant{}
	for _, m := range b.drawn {
		byFile[m.File] = append(byFile[m.File], m)
	}
	overlay, origin := map[string]string{}, map[string]string{}
	put := func(file, text string) {
		name := fmt.Sprintf("%d.go", len(overlay))
		origin[name], overlay[file] = file, filepath.Join(b.work, name)
		err = errors.Join(err, os.WriteFile(overlay[file], []byte(text), 0o600))
	}
	switched := map[string]bool{}
	for _, file := range slices.Sorted(maps.Keys(byFile)) {
		put(file, mutants.Insert(b.sources[file], byFile[file]))
		if p := b.packages[b.owner[file]]; !switched[p.ImportPath] {
			switched[p.ImportPath] = true
			targets = append(targets, p.ImportPath)
			put(filepath.Join(p.Dir, "mutant_switch.go"), mutants.MutantSwitchSource(p.Name))
		}
	}
	text, marshalErr := json.Marshal(map[string]any{"Replace": overlay})
	return targets, origin, errors.Join(err, marshalErr, os.WriteFile(b.overlayFile(), text, 0o600))
}

// testAllMutants tries each mutant and prints survivors, and the share killed of each package.
func (b *mutationRun) testAllMutants(ctx context.Context) (survived int) {
	total, killed := map[string]int{}, map[string]int{}
	for _, m := range b.drawn {
		if ctx.Err() != nil {
			return survived
		}
		name := b.owner[m.File]
		total[name]++
		if slices.ContainsFunc(b.testedPackagesOf(name), func(p string) bool { return b.isKilledBy(ctx, p, m.ID) }) {
			killed[name]++
			continue
		}
		survived++
		rel, err := filepath.Rel(b.root, m.File)
		if err != nil {
			rel = m.File
		}
		fmt.Fprintf(b.log, "survived %d  %s:%d  %s\n", m.ID, rel, m.Line, m.What)
	}
	for _, name := range slices.Sorted(maps.Keys(total)) {
		fmt.Fprintf(b.log, "%-24s %3d of %3d killed\n", name, killed[name], total[name])
	}
	fmt.Fprintf(b.log, "%d of %d killed\n", len(b.drawn)-survived, len(b.drawn))
	return survived
}

// testedPackagesOf returns the tested packages that see a package: itself, then those that import it.
func (b *mutationRun) testedPackagesOf(name string) (out []string) {
	path := b.module + "/internal/" + name
	for _, t := range b.tested {
		p := b.packages[t]
		if !b.own && t != name && slices.Contains(slices.Concat(p.Imports, p.TestImports, p.XTestImports), path) {
			out = append(out, t)
		}
	}
	if slices.Contains(b.tested, name) {
		out = append([]string{name}, out...)
	}
	return out
}

// isKilledBy reports that the tests of a package fail on a mutant.
func (b *mutationRun) isKilledBy(ctx context.Context, name string, id int) bool {
	binary, ok := b.binaries[name]
	if !ok {
		binary = b.buildAndTimeTests(ctx, name)
		b.binaries[name] = binary
	}
	return binary.file != "" && b.runTests(ctx, name, binary, id) != nil
}

func (b *mutationRun) buildAndTimeTests(ctx context.Context, name string) testBinary {
	file := filepath.Join(b.work, strings.ReplaceAll(name, "/", "-")+".test")
	out, err := b.newCommand(ctx, "go", "test", "-c", "-vet=off", "-overlay", b.overlayFile(), "-ldflags", "-s -w", "-o", file, "./internal/"+name).CombinedOutput()
	if err == nil {
		if _, err = os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return testBinary{}
		}
	}
	begin := time.Now()
	if err == nil {
		err = b.runTests(ctx, name, testBinary{file, 3 * time.Minute}, 0)
		if err != nil { // a busy machine
			err = b.runTests(ctx, name, testBinary{file, 3 * time.Minute}, 0)
		}
	}
	if err != nil {
		fmt.Fprintf(b.log, "tests of %s fail without a mutant: %v %s\n", name, err, out)
		return testBinary{}
	}
	return testBinary{file, 20*time.Second + 4*time.Since(begin)}
}

func (b *mutationRun) runTests(ctx context.Context, name string, binary testBinary, id int) error {
	ctx, cancel := context.WithTimeout(ctx, binary.limit)
	defer cancel()
	cmd := b.newCommand(ctx, binary.file, "-test.short", "-test.failfast")
	cmd.Dir = b.packages[name].Dir
	cmd.Env = append(cmd.Environ(), fmt.Sprint("ATOLL_MUTANT=", id))
	return cmd.Run()
}

func (b *mutationRun) newCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = b.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.WaitDelay = time.Second
	return cmd
}
