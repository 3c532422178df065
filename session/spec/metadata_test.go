package spec

import (
	"errors"
	"maps"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestMetadataEnv(t *testing.T) {
	got, err := MetadataEnv(map[string]string{
		"difficulty": "hard", "Max Tokens": "5", "a.b-c": "$HOME ${X} $$", "größe": "\xff\n", "": "empty",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"SAMPLE_METADATA_DIFFICULTY": "hard", "SAMPLE_METADATA_MAX_TOKENS": "5", "SAMPLE_METADATA_A_B_C": "$HOME ${X} $$",
		"SAMPLE_METADATA_GR__E": "\xff\n", "SAMPLE_METADATA_": "empty",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMetadataEnv_duplicates(t *testing.T) {
	_, err := MetadataEnv(map[string]string{"a b": "1", "A_B": "2"})
	if !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("got %v", err)
	}
}
