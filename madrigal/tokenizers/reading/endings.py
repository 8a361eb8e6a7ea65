"""Whether a sentence ends with the full stop of an abbreviation: "at 5 p.m. He left", but not "at 5 p.m. Tuesday"."""

import re

# A capital alone says little: a name may follow. These words begin sentences, and are small inside them.
STARTERS = (
    "A|After|All|Although|An|And|Another|As|At|Because|Before|Both|But|By|Do|Does|Each|Every|For|From|Have|He|Her|Here|His"
    "|How|However|If|In|Is|It|Its|Let|Many|Most|My|No|Nobody|Not|Nothing|Now|On|Once|One|Only|Or|Our|Please|She|Since|So"
    "|Some|Still|Such|That|The|Their|Then|There|These|They|This|Those|Though|To|Today|Under|Until|Was|We|What|When|Where"
    "|Which|While|Who|Why|With|Yes|Yet|You|Your"
)
ENDING = re.compile(rf"[\"'”’)\]]*(?:\s*$|[ \t]*\n|\s+[\"'“‘(\[]*(?:{STARTERS})\b)")


def ends_sentence(rest: str) -> bool:
    """Whether a sentence ends before `rest`, the text behind an abbreviation's full stop."""
    return ENDING.match(rest) is not None
