package fetch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/childprocess"
	"atoll.dev/atoll/internal/sources/renderchild"
)

// ChildCommand is the hidden subcommand of the hub's binary that runs ServeChild.
const ChildCommand = "fetch-source"

// Fetcher starts children.
type Fetcher struct {
	// Executable with its arguments; default: the hub's own with ChildCommand.
	Executable []string
	// AllowedNetworks are dialled although they are refused otherwise.
	AllowedNetworks []string
	sweep           sync.Once
	checkpoints     checkpoints
}

// dirPrefix begins the names of the directories of fetches.
const dirPrefix = "atoll-fetch-"

// passedEnvironment are the variables that a child gets.
var passedEnvironment = []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR"}

// Fetch runs one request in a child. The error is a *Failure, unless ctx ended. It is never of one content: what a
// content exceeds is in the answer.
func (f *Fetcher) Fetch(ctx context.Context, r Request) (*Answer, error) {
	r.AllowedNetworks = f.AllowedNetworks
	if compare := protocols[r.Type].compare; compare != nil && r.Descends != nil {
		return &Answer{Descends: compare(*r.Descends)}, nil
	}
	if contents, same, err := f.confirmSeen(ctx, r); same || err != nil {
		return &Answer{Contents: contents}, err
	}
	in, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the request of a fetch: %w", err)
	}
	if len(in) > maxRequestBytes {
		return nil, newFailure(atoll.ReasonFetchFailed, "the Sources of the Repository state more than %d bytes", maxRequestBytes)
	}
	f.sweep.Do(removeLeftDirectories)
	dir, err := os.MkdirTemp("", dirPrefix)
	if err != nil {
		return nil, newFailure(atoll.ReasonFetchFailed, "make a directory for the fetch: %v", err)
	}
	defer os.RemoveAll(dir)
	if release, locked := lockDirectory(dir); locked {
		defer release()
	}
	out, err := f.runChild(ctx, in, dir)
	if err != nil {
		return nil, err
	}
	var a Answer
	if err := json.Unmarshal(out, &a); err != nil {
		return nil, newFailure(atoll.ReasonFetchFailed, "the process that reads the repository ended without an answer")
	}
	if a.Failure != nil {
		return nil, a.Failure
	}
	f.checkpoints.replaceNote(r, a.Checkpoint)
	return &a, nil
}

// removeLeftDirectories removes the directories of fetches whose process ended before it could.
func removeLeftDirectories() {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range left {
		if release, locked := lockDirectory(dir); locked {
			os.RemoveAll(dir)
			release()
		}
	}
}

// runChild runs a child in a directory, and returns what it wrote.
func (f *Fetcher) runChild(ctx context.Context, in []byte, dir string) ([]byte, error) {
	child, err := f.childProgram()
	if err != nil {
		return nil, newFailure(atoll.ReasonFetchFailed, "%v", err)
	}
	out, err := childprocess.Run(ctx, childprocess.Program{Executable: child, Env: childEnvironment(), Dir: dir, Timeout: Timeout, MaxAnswer: maxAnswerBytes}, in)
	var ended *exec.ExitError
	switch {
	case err == nil || ctx.Err() != nil:
		return out, err
	case errors.Is(err, childprocess.ErrTimedOut):
		return nil, newFailure(atoll.ReasonFetchTimedOut, "the repository could not be read within %s", Timeout)
	case errors.Is(err, childprocess.ErrTooLong):
		return nil, newFailure(atoll.ReasonFetchFailed, "the process that reads the repository answers with more than %d bytes", maxAnswerBytes)
	case errors.As(err, &ended):
		return nil, newFailure(atoll.ReasonFetchFailed, "the process that reads the repository ended (%s): something ended it, or the repository needs more memory or disk than a fetch has", ended.ProcessState)
	}
	return nil, newFailure(atoll.ReasonFetchFailed, "start the process that reads the repository: %v", err)
}

// childProgram returns the program of a child and its arguments.
func (f *Fetcher) childProgram() ([]string, error) {
	if len(f.Executable) > 0 {
		return f.Executable, nil
	}
	return childprocess.FindOwn(ChildCommand)
}

// childEnvironment returns what a child needs of the hub's environment.
func childEnvironment() []string {
	env := childprocess.Environment(childMemory)
	for _, name := range passedEnvironment {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// ServeChild is the child: it reads a request, and writes its answer. It bounds its own process first.
func ServeChild(ctx context.Context, in io.Reader, out io.Writer) error {
	if err := childprocess.Limit(childprocess.Limits{DataBytes: childData, FileBytes: 2 * maxPackBytes, OpenFiles: 256}); err != nil {
		return fmt.Errorf("bound the process that reads a repository: %w", err)
	}
	raw, err := childprocess.ReadRequest(in, maxRequestBytes)
	if err != nil {
		return err
	}
	var r Request
	if json.Unmarshal(raw, &r) != nil {
		return errors.New("the request of a fetch cannot be read")
	}
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the directory of a fetch: %w", err)
	}
	answer := runRequest(ctx, r, dir)
	return json.NewEncoder(out).Encode(answer)
}

// runRequest answers a request; dir is an empty directory.
func runRequest(ctx context.Context, r Request, dir string) Answer {
	of, err := openRepository(r, place{maxText: maxTextBytes, dir: dir})
	if err != nil {
		return Answer{Failure: failureOf(err)}
	}
	if r.Descends != nil {
		descends, err := protocols[r.Type].readHistory(ctx, of, *r.Descends)
		return Answer{Descends: descends, Failure: failureOf(err)}
	}
	reader := newContentReader(of, renderchild.Runner{})
	reader.mustBeSigned = r.Verify != nil
	contents, err := reader.readContents(ctx, r.Wants)
	return Answer{Contents: contents, Checkpoint: of.readCheckpoint(), Failure: failureOf(err)}
}
