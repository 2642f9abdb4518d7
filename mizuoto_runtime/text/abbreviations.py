"""Words whose full stop usually ends no sentence, in the languages that write them before a capital or a number."""

from __future__ import annotations

_TITLES = """
adm capt cmdr col dhr doc dott dr drs exmo fr frl gen gov hon hr ing insp inż jr lic lt ltd maj mag mevr mgr mlle mlles
mm mme mmes mr mrs ms mt mudr mw pres prof ref rep rev sen sgt sig sigg snr sr sra sras srta st ste stn
"""
_REFERENCES = """
abb abs al anm app approx apr art aug avda ave bd bl bldg blz blvd bzw ca cap cca cf ch chap cit co corp dec dept ed eds
engl est etc evtl ex ff feb fig figs ggf hl hrsg inc inkl jan jh jul jun kap lit max min mio mld mrd nom nos nov no np
nr núm oct okt op pag pág pp qtd rd resp sec sept sek sep str tab tel tom univ usw vgl vol vols vs zit
"""
_OTHER_SCRIPTS = """
г гг гор доц им л млн млрд обл пр проф рис руб см стр т тыс ул
αι κ κα κος σελ
"""

ABBREVIATIONS = frozenset((_TITLES + _REFERENCES + _OTHER_SCRIPTS).split())
"""Lower case, without the stop. Only a hint: where it's wrong, two sentences are kept together."""
