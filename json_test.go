package fumehood

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestResult_JSON(t *testing.T) {
	full := Result{
		Outcome: Lost, ExitCode: -1, Signal: 9, Stdout: Output{Bytes: []byte("é<"), Total: 7}, Stderr: Output{Bytes: []byte("\xffa"), Total: 2},
		Started: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Duration: 1500*time.Millisecond + 250*time.Nanosecond, Reason: "why", CausedInside: true, Leaked: true,
		Usage: Usage{User: time.Second, System: time.Microsecond, MaxRSS: 1, MemoryPeak: 2, OOMKills: 3, PIDsLimits: 4},
	}
	for _, res := range []Result{full, {Outcome: Exited}} {
		text, err := json.Marshal(&res)
		if err != nil {
			t.Fatal(err)
		}
		var again Result
		if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(again, res) {
			t.Errorf("got  %+v, %v\nwant %+v\nJSON %s", again, err, res, text)
		}
	}
	text, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"outcome":"lost"`, `"exit_code":-1`, `"duration_ms":1500.00025`, `"user_ms":1000`, `"system_ms":0.001`, `"max_rss":1`,
		"{\"text\":\"\ufffda\"," + `"base64":"/2E=","bytes":2,"truncated":false}`, `"bytes":7,"truncated":true`, `"started":"2026-01-02T03:04:05.000000006Z"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	if text, err := json.Marshal(Result{Outcome: Exited}); err != nil || string(text) != `{"outcome":"exited","exit_code":0,"stdout":{"text":"","bytes":0,"truncated":false},"stderr":{"text":"","bytes":0,"truncated":false},"duration_ms":0}` {
		t.Errorf("a minimal result is %s, %v", text, err)
	}
}
