BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('v3.2.0.a');
CREATE TABLE autotune_about (
	"key" VARCHAR(64) NOT NULL, 
	value TEXT NOT NULL, 
	CONSTRAINT pk_autotune_about PRIMARY KEY ("key")
);
INSERT INTO "autotune_about" VALUES('autotune','0.1.0');
INSERT INTO "autotune_about" VALUES('optuna','5.0.0 v3.2.0.a');
CREATE TABLE autotune_alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT autotune_alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "autotune_alembic_version" VALUES('0003');
CREATE TABLE autotune_bundle (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	path TEXT NOT NULL, 
	written_at DOUBLE NOT NULL, 
	CONSTRAINT pk_autotune_bundle PRIMARY KEY (id), 
	CONSTRAINT fk_autotune_bundle_study_id_autotune_study FOREIGN KEY(study_id) REFERENCES autotune_study (id)
);
INSERT INTO "autotune_bundle" VALUES(1,1,'/home/user/project/autotune-ended',1.7954259745904855728e+09);
CREATE TABLE autotune_environment (
	id INTEGER NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	environment TEXT NOT NULL, 
	CONSTRAINT pk_autotune_environment PRIMARY KEY (id), 
	CONSTRAINT uq_autotune_environment_sha256 UNIQUE (sha256)
);
INSERT INTO "autotune_environment" VALUES(1,'4f059dcf5e16b8a504eb34ca50262002aec2999b4c459a88752c42ba3ccc1580','{"device_kind":"cpu","device_name":"AMD EPYC","device_memory_bytes":25276514304,"num_devices":1,"num_threads":1,"hostname":"workstation","platform":"Linux-6.1-x86_64","python":"3.11.7","torch":"2.13.0+cpu","cuda":null,"driver":null,"variables":{"CUDA_VISIBLE_DEVICES":"","OMP_NUM_THREADS":"1"}}');
CREATE TABLE autotune_final (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	owner_id INTEGER, 
	ended BOOLEAN NOT NULL, 
	CONSTRAINT pk_autotune_final PRIMARY KEY (id), 
	CONSTRAINT fk_autotune_final_study_id_autotune_study FOREIGN KEY(study_id) REFERENCES autotune_study (id), 
	CONSTRAINT fk_autotune_final_owner_id_autotune_owner FOREIGN KEY(owner_id) REFERENCES autotune_owner (id), 
	CONSTRAINT uq_autotune_final_study_id_number UNIQUE (study_id, number)
);
INSERT INTO "autotune_final" VALUES(1,1,1,1,1);
CREATE TABLE autotune_owner (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	machine VARCHAR(128) NOT NULL, 
	hostname VARCHAR(255) NOT NULL, 
	process INTEGER NOT NULL, 
	process_start BIGINT NOT NULL, 
	registered_at DOUBLE NOT NULL, 
	heartbeat_at DOUBLE NOT NULL, 
	CONSTRAINT pk_autotune_owner PRIMARY KEY (id), 
	CONSTRAINT fk_autotune_owner_study_id_autotune_study FOREIGN KEY(study_id) REFERENCES autotune_study (id), 
	CONSTRAINT uq_autotune_owner_process UNIQUE (study_id, machine, hostname, process, process_start)
);
INSERT INTO "autotune_owner" VALUES(1,1,'00000000-0000-0000-0000-000000000000 pid:[1]','workstation',2684,3407292,1.79542589652223610876e+09,1.79542596674664711947e+09);
INSERT INTO "autotune_owner" VALUES(2,2,'00000000-0000-0000-0000-000000000000 pid:[1]','workstation',5702,3418929,1.79542599984443449973e+09,1.79542599984443831439e+09);
CREATE TABLE autotune_repeat (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	round INTEGER NOT NULL, 
	configuration TEXT NOT NULL, 
	run_directory TEXT NOT NULL, 
	finished_at DOUBLE NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	samples_per_s DOUBLE, 
	peak_bytes BIGINT, 
	outcome TEXT NOT NULL, 
	environment_id INTEGER, final INTEGER DEFAULT '1' NOT NULL, 
	CONSTRAINT pk_autotune_repeat PRIMARY KEY (id), 
	CONSTRAINT fk_autotune_repeat_study_id_autotune_study FOREIGN KEY(study_id) REFERENCES autotune_study (id), 
	CONSTRAINT fk_autotune_repeat_environment_id_autotune_environment FOREIGN KEY(environment_id) REFERENCES autotune_environment (id)
);
INSERT INTO "autotune_repeat" VALUES(1,1,0,'{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[],"accumulation":0}','/home/user/project/.autotune/runs/ended/final-1-round-1',1.79542592126349806781e+09,'measured',1.1597732608458274626e+04,326144000,'{"kind":"measured","measurement":{"step_times_s":[0.017894111995701678,0.0014607010016334243,0.0006863800008432008,0.003981216003012378,0.0006984579958952963,0.0005621750024147332,0.000542626999958884,0.0005378689966164529,0.000533243000973016,0.0005344940000213683,0.000526873001945205,0.008258492998720612,0.001056469998729881,0.0006305070055532269,0.0018574399946373887,0.0005814440009999089,0.0006352640048135072,0.0005434279955807142,0.007179248997999821,0.0008036840008571744,0.0005877229996258393,0.0005959160043857992,0.000537408996024169,0.0005254999996395782,0.008614282000053208,0.0016789450019132346,0.005419724002422299,0.0006730499953846447,0.0017132560024037957,0.0028251089970581234,0.0014569949998985976,0.002585843001725152,0.00228988299932098,0.0006370460032485425,0.000558601001102943,0.009197567997034639,0.0022538789999089204,0.0005804930042359047,0.005271343994536437,0.0006932000032975338,0.0005527510002139024,0.0006008630007272586,0.008184382997569628,0.00424882399966009,0.0009060459997272119,0.0006721989993820898,0.0005447799994726665,0.0005412640020949766,0.0005326120008248836,0.011932813002204057,0.0008085009976639412,0.0005844389961566776,0.009162987000308931,0.0009575430012773722,0.0006461200027843006,0.0005828060020576231,0.010141981998458505,0.004555068997433409,0.0006582179994438775,0.0005851200039614923],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326144000},"warmup_steps":4,"warmup_s":0.008879054999852087,"batch_size":8,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.695485249937271,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":["steps are uneven: the mean step takes 3.74x the median (evaluation or logging inside?)"]}}',1,1);
INSERT INTO "autotune_repeat" VALUES(2,1,0,'{"engine":"eager","plans":[],"level":0,"batch_size":16,"choices":[],"accumulation":0}','/home/user/project/.autotune/runs/ended/final-1-round-1-2',1.79542593359118843082e+09,'measured',2.64531020758235790716e+04,326180864,'{"kind":"measured","measurement":{"step_times_s":[0.012565233002533205,0.0007196099977591075,0.0037157819970161654,0.0006226650002645329,0.0006471919987234287,0.0005827160057378933,0.0005581489967880771,0.0005512990028364584,0.004777720001584385,0.0006118699966464192,0.0006159350014058873,0.0005690559992217459,0.0005540130005101673,0.0005454909987747669,0.0005482139968080446,0.008826728000713047,0.0006998000026214868,0.0005881239994778298,0.0005574280003202148,0.0005952650026301853,0.0005669419988407753,0.0006442269950639457,0.0006689650035696104,0.0005591610024566762,0.0006214329987415113,0.0005672929983120412,0.0005437580039142631,0.004796327993972227,0.0006713780021527782,0.0005720699991798028,0.0005540330021176487,0.0005607630009762943,0.0005455909995362163,0.000538479995157104,0.00940063100279076,0.0007204100038507022,0.0006127609958639368,0.0005723799986299127,0.0005442490000859834,0.008736273004615214,0.0008707140004844405,0.005294096998113673,0.0006849080018582754,0.000593762997596059,0.0026741539986687712,0.0006228150014067069,0.0005816249977215193,0.008820297000056598,0.0009020409997901879,0.0005955750020802952,0.006387772002199199,0.0007181679975474253,0.0005785399989690632,0.0005978179979138076,0.0005769970011897385,0.0005539539997698739,0.000572510005440563,0.004699503995652776,0.0006162360004964285,0.0005648290025419556],"samples_per_step":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326180864},"warmup_steps":3,"warmup_s":0.00849379300052533,"batch_size":16,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.5659049126429323,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":["steps are uneven: the mean step takes 3.00x the median (evaluation or logging inside?)"]}}',1,1);
INSERT INTO "autotune_repeat" VALUES(3,1,1,'{"engine":"eager","plans":[],"level":0,"batch_size":16,"choices":[],"accumulation":0}','/home/user/project/.autotune/runs/ended/final-1-round-2',1.79542594333520555494e+09,'measured',2.07045097278507601e+04,326193152,'{"kind":"measured","measurement":{"step_times_s":[0.022828474997368176,0.0008596170009695925,0.0006791400010115467,0.0007033450019662268,0.0006388889960362576,0.000579040999582503,0.0005760060012107715,0.016031653998652473,0.005487745002028532,0.005197573998884764,0.0007074419991113245,0.0005724799993913621,0.0062892570058465935,0.001416414997947868,0.0008416599957854487,0.0007133309991331771,0.006024723006703425,0.0008190070002456196,0.0007329289946937934,0.003288958003395237,0.0006732699985150248,0.0006143630016595125,0.009200963999319356,0.0010551180021138862,0.0009181839996017516,0.0007360339950537309,0.004888735005806666,0.0008491219996358268,0.0031609269935870543,0.0007462190042133443,0.0017847929993877187,0.0007146720017772168,0.000691226996423211,0.0005762560031143948,0.0005574390015681274,0.0005632469983538613,0.0005541430000448599,0.0006723990009049885,0.0007236059973365627,0.009329763997811824,0.0007464600057573989,0.002968761997180991,0.003466991998720914,0.0009438420020160265,0.0007230549963423982,0.0006126100051915273,0.02011085699632531,0.0030845240034977905,0.000919045000046026,0.0005951849962002598,0.005344342003809288,0.0007238959951791912,0.0006525190037791617,0.0007340009979088791,0.000637297001958359,0.005101220995129552,0.0014935500003048219,0.0031391950033139437,0.0007990969970705919,0.0006892650053487159],"samples_per_step":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326193152},"warmup_steps":6,"warmup_s":0.028793258999940008,"batch_size":16,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.676316503568067,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":["steps are uneven: the mean step takes 3.49x the median (evaluation or logging inside?)"]}}',1,1);
INSERT INTO "autotune_repeat" VALUES(4,1,1,'{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[],"accumulation":0}','/home/user/project/.autotune/runs/ended/final-1-round-2-2',1.79542595263983178143e+09,'measured',1.23208756397528813972e+04,326209536,'{"kind":"measured","measurement":{"step_times_s":[0.007033641995803919,0.0012004939999314956,0.005148361000465229,0.000923723004234489,0.0005555249954340979,0.0040895480051403865,0.0007143509938032366,0.0005537230026675388,0.0005323809964465909,0.0025889280004776083,0.0006588690011994913,0.0005407030039350502,0.0005400329973781481,0.0005282249985611998,0.0006113080016802996,0.0069838790004723705,0.0007518670026911423,0.000589486000535544,0.000547553994692862,0.00902932800090639,0.0007978060020832345,0.0005638180009555072,0.0005480239997268654,0.0005470629985211417,0.0039054739972925745,0.000565080001251772,0.002127040999766905,0.0006397399993147701,0.0005593720052274875,0.0005353149972506799,0.00750411199987866,0.01284765300079016,0.0015680899959988892,0.002078939003695268,0.004575660001137294,0.0006299460001173429,0.0027895359962712973,0.0006274320039665326,0.0005372089945012704,0.003935097003704868,0.0011296090015093796,0.0006310780008789152,0.0018852219945983961,0.0016997450002236292,0.002138898998964578,0.0006729000015184283,0.0005465120048029348,0.0005333829976734705,0.002490951999789104,0.0005701069967471994,0.000540904002264142,0.0005751740027335472,0.0005757559993071482,0.0005251299953670241,0.0054528840046259575,0.006371518000378273,0.0010086190013680607,0.0006019149950589053,0.0005525009983102791,0.0005380900038289838],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326209536},"warmup_steps":5,"warmup_s":0.020376421001856215,"batch_size":8,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.5621113284937324,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":["steps are uneven: the mean step takes 3.06x the median (evaluation or logging inside?)"]}}',1,1);
INSERT INTO "autotune_repeat" VALUES(5,1,2,'{"engine":"eager","plans":[],"level":0,"batch_size":16,"choices":[],"accumulation":0}','/home/user/project/.autotune/runs/ended/final-1-round-3',1.79542596087513685225e+09,'measured',2.52331305245491821541e+04,326254592,'{"kind":"measured","measurement":{"step_times_s":[0.001088377000996843,0.005403490002208855,0.0009943279947037809,0.002562017005402595,0.0006666109984507784,0.0005767069960711524,0.0005591410008491948,0.0005679940004483797,0.0006538520028698258,0.0005539029953069985,0.000549447002413217,0.007209643998066895,0.005491420000907965,0.0007828640009392984,0.0005903470009798184,0.0005666020006174222,0.003433101999689825,0.0006732900001225062,0.0005759560008300468,0.0006070829986128956,0.004855195002164692,0.000606730995059479,0.0008381060033570975,0.0005890050015295856,0.0005535929958568886,0.0005470629985211417,0.0029326980002224445,0.0005971979990135878,0.0005621650052489713,0.004376283999590669,0.0005999409986543469,0.0034632070019142702,0.0006329199968604371,0.0005738530016969889,0.0005503380016307347,0.0023833719969843514,0.0006863099988549948,0.0018894780005211942,0.0006352540003717877,0.0030858550017001107,0.0006296759966062382,0.0006124200008343905,0.004026023001642898,0.0007441560010192916,0.0005760260028182529,0.0005594319954980165,0.0007297839983948506,0.0005912590058869682,0.0005527609973796643,0.002473645996360574,0.0005940730043221265,0.0005672629995387979,0.002695905997825321,0.0006731410030624829,0.000573281999095343,0.0005532619979931042,0.0028218430015840568,0.00331074000132503,0.0007103259995346889,0.0005784899985883385],"samples_per_step":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326254592},"warmup_steps":6,"warmup_s":0.016638726003293414,"batch_size":16,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.5522759100228715,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":["steps are uneven: the mean step takes 2.35x the median (evaluation or logging inside?)"]}}',1,1);
INSERT INTO "autotune_repeat" VALUES(6,1,2,'{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[],"accumulation":0}','/home/user/project/.autotune/runs/ended/final-1-round-3-2',1.79542597398495626446e+09,'measured',8823.52125567804,326176768,'{"kind":"measured","measurement":{"step_times_s":[0.0018191729977843352,0.0008888510055840015,0.027176115996553563,0.009661828000389505,0.0012175700030638836,0.0008232830004999414,0.0007529089998570271,0.013450067999656312,0.001322585994785186,0.0031750680063851178,0.0008752109933993779,0.0006528800004161894,0.0007727680058451369,0.011609973997110501,0.005315458998666145,0.0011301990016363561,0.003022181997948792,0.0008107640023808926,0.000732779000827577,0.0007332899986067787,0.0007085830002324656,0.017802235997805838,0.0009556700024404563,0.0007573850016342476,0.00904894799896283,0.001420681001036428,0.0007342809985857457,0.005561995996686164,0.0009437520056962967,0.004601237997121643,0.0007758529973216355,0.0007360540039371699,0.00929582399840001,0.0011377010014257394,0.0007752620003884658,0.0007379070011666045,0.0007461889981641434,0.018477489000360947,0.0010279569978592917,0.0009244840039173141,0.0007432249985868111,0.0007313259993679821,0.0007146729985834099,0.0007010810004430823,0.0007335709960898384,0.022588338004425168,0.000995599002635572,0.005216992998612113,0.0009420099959243089,0.0006523789998027496,0.0006920390005689114,0.0006110879985499196,0.017972499001189135,0.0008195880000130273,0.000609315000474453,0.005760840998846106,0.0006128110035206191,0.000536407002073247,0.006743891994119622,0.000634743002592586],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326176768},"warmup_steps":6,"warmup_s":0.07413372900191462,"batch_size":8,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.7336899191978672,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":["steps are uneven: the mean step takes 4.18x the median (evaluation or logging inside?)"]}}',1,1);
CREATE TABLE autotune_study (
	id INTEGER NOT NULL, 
	optuna_study_id INTEGER NOT NULL, 
	name VARCHAR(512) NOT NULL, 
	spec TEXT NOT NULL, 
	facts TEXT, 
	verdict TEXT, 
	created_at DOUBLE NOT NULL, 
	autotune VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_autotune_study PRIMARY KEY (id), 
	CONSTRAINT uq_autotune_study_name UNIQUE (name)
);
INSERT INTO "autotune_study" VALUES(1,1,'ended','{"script":"/home/user/project/train.py","arguments":[],"working_directory":"/home/user/project","python":"/usr/bin/python3","module":"","engine":"aot","memory_limit_bytes":null,"objective":{"goal":"throughput","max_slowdown":0.03,"target_memory_bytes":null},"time_budget_s":150.0,"max_trials":2,"own_batch_size":null,"batch_sizes":[8,16],"devices":[],"sampler":"model","seed":0,"start_timeout_s":300.0,"trial_timeout_s":120.0,"finalist_rounds":3,"plans_first":[],"choices":[],"keep_global_batch":false,"measuring":{"min_warmup_steps":2,"max_warmup_steps":12,"min_steps":5,"max_steps":60,"interval_ratio":0.01,"rough_interval_ratio":0.03,"fine_steps":24,"min_measure_s":0.5,"max_measure_s":10.0,"rate_to_beat":null},"leaves_files":false}','{"baseline":{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[],"accumulation":0},"batch_size":8,"batch_control":{"how":"loaders","loaders":[0],"sites":["114c2327ef28a145"],"reason":""},"clusters":[{"cluster_id":"addmm+","strategy":1,"frequency":1,"saving_bytes":2048,"saving_formula":"256*batch","recompute_time_s":0.0001121869936469011,"calls_per_step":1.0,"is_layer":false,"is_indivisible":false,"excludes":[],"note":"runs costly operators again"},{"cluster_id":"gelu+","strategy":1,"frequency":1,"saving_bytes":2048,"saving_formula":"256*batch","recompute_time_s":8.524700388079509e-05,"calls_per_step":1.0,"is_layer":false,"is_indivisible":false,"excludes":[],"note":""}],"dimensions":{"batch":8},"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":4096},"roots":[{"name":"Sequential","num_parameters":1153,"num_trainable":1153,"num_graphs":1,"applied_by":"aot","wrapped_by":[]}],"optimizers":[{"name":"SGD","settings":{"lr":"0.01","momentum":"0","dampening":"0","weight_decay":"0","nesterov":"False","maximize":"False","foreach":"None","differentiable":"False","fused":"None"}}],"precision":{"parameters":"float32","autocast":null,"grad_scaler":false},"environment":{"device_kind":"cpu","device_name":"AMD EPYC","device_memory_bytes":25276514304,"num_devices":1,"num_threads":1,"hostname":"workstation","platform":"Linux-6.1-x86_64","python":"3.11.7","torch":"2.13.0+cpu","cuda":null,"driver":null,"variables":{"CUDA_VISIBLE_DEVICES":"","OMP_NUM_THREADS":"1"}},"calls_per_step":1.0,"script_sha256":"f0b8108abea4c0ed8bf946cec5a38d2c60c0af3d36139bf26a2d4a302710e1cd","memory_matrix":[{"phase":"pre_forward","step":67,"allocated":326914048,"max_allocated":326914048,"peak":326914048,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":67,"allocated":326914048,"max_allocated":326918144,"peak":326918144,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":67,"allocated":326914048,"max_allocated":326918144,"peak":326914048,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":67,"allocated":326922240,"max_allocated":326930432,"peak":326930432,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_forward","step":68,"allocated":326922240,"max_allocated":326930432,"peak":326922240,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":68,"allocated":326922240,"max_allocated":326930432,"peak":326926336,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":68,"allocated":326918144,"max_allocated":326930432,"peak":326926336,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":68,"allocated":326926336,"max_allocated":326934528,"peak":326934528,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0}],"notes":[],"graphs":[{"names":["primals_1","primals_2","primals_3","primals_4","primals_5","primals_6","tangents_1","t","addmm","gelu","t_1","addmm_1","t_2","mm","t_3","mm_1","t_4","sum_1","view","t_5","gelu_backward","t_6","mm_2","t_7","sum_2","view_1","t_8"],"inputs":[[],[],[],[],[],[],[],[0],[1,3,7],[8],[4],[5,9,10],[10],[6,12],[6],[14,9],[15],[6],[17],[16],[13,8],[20],[21,3],[22],[20],[24],[23]],"storages":[[0],[1],[],[2],[3],[4],[5],[0],[6],[7],[3],[8],[3],[9],[5],[10],[10],[11],[11],[10],[12],[12],[13],[13],[14],[14],[13]],"sizes":[0,1,2,1,3,4,5,5,4,5,1,3,5,0,1],"formulas":["4096","256","64*batch","4","4*batch","256*batch"],"forward_outputs":[11],"backward_outputs":[26,25,19,18],"last_forward":11,"primals":[0,1,2,3,4,5],"tangents":[6],"constants":[],"symbols":[2],"getitems":[],"random":[],"updates":[],"checkpoints":[],"layers":[{"cluster_id":"Linear+","num_nodes":2,"recompute":[7],"keep":[8]},{"cluster_id":"Linear+","num_nodes":2,"recompute":[10],"keep":[11]}],"occurrences":[{"cluster_id":"addmm+","strategy":1,"nodes":[7,8]},{"cluster_id":"gelu+","strategy":1,"nodes":[9]}],"rng_state_bytes":5056,"always":[],"holds_tangents":false,"rng_state_elsewhere":false,"fixed":[],"elsewhere":[],"calls":1.0,"times_ns":[0,0,0,0,0,0,0,31727,80460,85247,3755,9584,10676,18026,2204,4686,1853,26869,15993,2794,65587,3364,11286,1983,13760,5299,2183],"batch_sizes":[2,4,8,16,32],"workspace":[],"growing":[]}],"calibration":{"torch":"2.13.0+cpu","device_name":"AMD EPYC","dtype":"float32","num_threads":1,"dimensions":{"batch":8},"error":0.0,"reason":"","engine":"aot","generated_share":null},"fork_refusal":"","per_sample":{},"undescribed":null,"accumulation_control":{"how":"none","steps":1,"reason":"nothing is known that sets it; where the script''s arguments take it, put {accumulation:4} there, with the script''s own number"},"epoch":{"samples":4096,"drops_last":false},"steps":{"in_pass":512.0,"passes":1,"epochs":null,"in_all":null},"outside":[],"traces":[{"calls":[0],"events":[0,-1],"stretches":[{"begin":32,"rise":76,"end":36,"gradients_begin":0,"gradients_end":-4612,"late_rise":68},{"begin":36,"rise":0,"end":0,"gradients_begin":-4612,"gradients_end":32,"late_rise":null}],"shared":[{"uses":[[0,8]],"born":0,"held_until":-1}],"unfinished":[],"gradients":4612,"results":32}]}','{"kind_of_answer":"baseline_best","winner":{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[],"accumulation":0},"reason":"Your baseline stays: batch 16 without plans may be faster than your baseline (0.356x to 13.870x); 3 rounds beside it do not tell. Other programs kept the machine busy in 6 of 6 measurements of these rounds: only a difference of 6.2x or more can be trusted.","stop_reason":"The model of this search expects no more than 15,166 samples/s of anything untried that fits; of the best, which was measured at 15,173, it expects 15,166.","memory_limit_bytes":20093853696,"comparisons":[{"configuration":{"engine":"eager","plans":[],"level":0,"batch_size":16,"choices":[],"accumulation":0},"samples_per_s":25233.130524549182,"baseline_samples_per_s":11597.732608458275,"speedup":2.221358720097209,"speedup_low":0.3557716074353651,"speedup_high":13.869669361539396,"peak_bytes":326254592,"baseline_peak_bytes":326209536,"peak_ratio":1.0001004593408762,"peak_ratio_low":null,"peak_ratio_high":null,"rounds":3,"found":"unresolved","found_fast":null}],"proofs":[],"needed_s":null}',1.79542587161310887339e+09,'0.1.0');
INSERT INTO "autotune_study" VALUES(2,2,'killed','{"script":"/home/user/project/train.py","arguments":[],"working_directory":"/home/user/project","python":"/usr/bin/python3","module":"","engine":"aot","memory_limit_bytes":null,"objective":{"goal":"throughput","max_slowdown":0.03,"target_memory_bytes":null},"time_budget_s":120.0,"max_trials":60,"own_batch_size":null,"batch_sizes":[8,16],"devices":[],"sampler":"model","seed":0,"start_timeout_s":300.0,"trial_timeout_s":120.0,"finalist_rounds":1,"plans_first":[],"choices":[],"keep_global_batch":false,"measuring":{"min_warmup_steps":2,"max_warmup_steps":12,"min_steps":5,"max_steps":60,"interval_ratio":0.01,"rough_interval_ratio":0.03,"fine_steps":24,"min_measure_s":0.5,"max_measure_s":10.0,"rate_to_beat":null},"leaves_files":false}','{"baseline":{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[],"accumulation":0},"batch_size":8,"batch_control":{"how":"loaders","loaders":[0],"sites":["114c2327ef28a145"],"reason":""},"clusters":[{"cluster_id":"addmm+","strategy":1,"frequency":1,"saving_bytes":2048,"saving_formula":"256*batch","recompute_time_s":3.701299283420667e-05,"calls_per_step":1.0,"is_layer":false,"is_indivisible":false,"excludes":[],"note":"runs costly operators again"},{"cluster_id":"gelu+","strategy":1,"frequency":1,"saving_bytes":2048,"saving_formula":"256*batch","recompute_time_s":3.439000283833593e-05,"calls_per_step":1.0,"is_layer":false,"is_indivisible":false,"excludes":[],"note":""}],"dimensions":{"batch":8},"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":4096},"roots":[{"name":"Sequential","num_parameters":1153,"num_trainable":1153,"num_graphs":1,"applied_by":"aot","wrapped_by":[]}],"optimizers":[{"name":"SGD","settings":{"lr":"0.01","momentum":"0","dampening":"0","weight_decay":"0","nesterov":"False","maximize":"False","foreach":"None","differentiable":"False","fused":"None"}}],"precision":{"parameters":"float32","autocast":null,"grad_scaler":false},"environment":{"device_kind":"cpu","device_name":"AMD EPYC","device_memory_bytes":25276514304,"num_devices":1,"num_threads":1,"hostname":"workstation","platform":"Linux-6.1-x86_64","python":"3.11.7","torch":"2.13.0+cpu","cuda":null,"driver":null,"variables":{"CUDA_VISIBLE_DEVICES":"","OMP_NUM_THREADS":"1"}},"calls_per_step":1.0,"script_sha256":"f0b8108abea4c0ed8bf946cec5a38d2c60c0af3d36139bf26a2d4a302710e1cd","memory_matrix":[{"phase":"pre_forward","step":72,"allocated":326975488,"max_allocated":326975488,"peak":326975488,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":72,"allocated":326975488,"max_allocated":326983680,"peak":326983680,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":72,"allocated":326967296,"max_allocated":326983680,"peak":326979584,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":72,"allocated":326975488,"max_allocated":326995968,"peak":326995968,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_forward","step":73,"allocated":326975488,"max_allocated":326995968,"peak":326979584,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":73,"allocated":326975488,"max_allocated":326995968,"peak":326983680,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":73,"allocated":326971392,"max_allocated":326995968,"peak":326983680,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":73,"allocated":326983680,"max_allocated":326995968,"peak":326995968,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0}],"notes":[],"graphs":[{"names":["primals_1","primals_2","primals_3","primals_4","primals_5","primals_6","tangents_1","t","addmm","gelu","t_1","addmm_1","t_2","mm","t_3","mm_1","t_4","sum_1","view","t_5","gelu_backward","t_6","mm_2","t_7","sum_2","view_1","t_8"],"inputs":[[],[],[],[],[],[],[],[0],[1,3,7],[8],[4],[5,9,10],[10],[6,12],[6],[14,9],[15],[6],[17],[16],[13,8],[20],[21,3],[22],[20],[24],[23]],"storages":[[0],[1],[],[2],[3],[4],[5],[0],[6],[7],[3],[8],[3],[9],[5],[10],[10],[11],[11],[10],[12],[12],[13],[13],[14],[14],[13]],"sizes":[0,1,2,1,3,4,5,5,4,5,1,3,5,0,1],"formulas":["4096","256","64*batch","4","4*batch","256*batch"],"forward_outputs":[11],"backward_outputs":[26,25,19,18],"last_forward":11,"primals":[0,1,2,3,4,5],"tangents":[6],"constants":[],"symbols":[2],"getitems":[],"random":[],"updates":[],"checkpoints":[],"layers":[{"cluster_id":"Linear+","num_nodes":2,"recompute":[7],"keep":[8]},{"cluster_id":"Linear+","num_nodes":2,"recompute":[10],"keep":[11]}],"occurrences":[{"cluster_id":"addmm+","strategy":1,"nodes":[7,8]},{"cluster_id":"gelu+","strategy":1,"nodes":[9]}],"rng_state_bytes":5056,"always":[],"holds_tangents":false,"rng_state_elsewhere":false,"fixed":[],"elsewhere":[],"calls":1.0,"times_ns":[0,0,0,0,0,0,0,10745,26268,34390,3085,7070,9354,11447,2023,3135,1763,15594,8623,2334,48592,2924,8994,1813,11477,4998,2064],"batch_sizes":[2,4,8,16,32],"workspace":[],"growing":[]}],"calibration":{"torch":"2.13.0+cpu","device_name":"AMD EPYC","dtype":"float32","num_threads":1,"dimensions":{"batch":8},"error":0.0,"reason":"","engine":"aot","generated_share":null},"fork_refusal":"","per_sample":{},"undescribed":null,"accumulation_control":{"how":"none","steps":1,"reason":"nothing is known that sets it; where the script''s arguments take it, put {accumulation:4} there, with the script''s own number"},"epoch":{"samples":4096,"drops_last":false},"steps":{"in_pass":512.0,"passes":1,"epochs":null,"in_all":null},"outside":[],"traces":[{"calls":[0],"events":[0,-1],"stretches":[{"begin":32,"rise":76,"end":36,"gradients_begin":0,"gradients_end":-4612,"late_rise":68},{"begin":36,"rise":0,"end":0,"gradients_begin":-4612,"gradients_end":32,"late_rise":null}],"shared":[{"uses":[[0,8]],"born":0,"held_until":-1}],"unfinished":[],"gradients":4612,"results":32}]}',NULL,1.79542598608806419375e+09,'0.1.0');
CREATE TABLE autotune_trial (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	optuna_trial_id INTEGER NOT NULL, 
	owner_id INTEGER NOT NULL, 
	configuration TEXT, 
	state VARCHAR(16) NOT NULL, 
	recovered BOOLEAN NOT NULL, 
	told BOOLEAN NOT NULL, 
	run_directory TEXT NOT NULL, 
	started_at DOUBLE NOT NULL, 
	finished_at DOUBLE, 
	kind VARCHAR(32), 
	samples_per_s DOUBLE, 
	peak_bytes BIGINT, 
	outcome TEXT, 
	environment_id INTEGER, 
	CONSTRAINT pk_autotune_trial PRIMARY KEY (id), 
	CONSTRAINT fk_autotune_trial_study_id_autotune_study FOREIGN KEY(study_id) REFERENCES autotune_study (id), 
	CONSTRAINT fk_autotune_trial_owner_id_autotune_owner FOREIGN KEY(owner_id) REFERENCES autotune_owner (id), 
	CONSTRAINT fk_autotune_trial_environment_id_autotune_environment FOREIGN KEY(environment_id) REFERENCES autotune_environment (id), 
	CONSTRAINT uq_autotune_trial_study_id_number UNIQUE (study_id, number)
);
INSERT INTO "autotune_trial" VALUES(1,1,0,1,1,'{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[],"accumulation":0}','finished',0,1,'/home/user/project/.autotune/runs/ended/discovery',1.79542588186470603939e+09,1.79542589779096412655e+09,'measured',5.27553457573745527035e+03,326299648,'{"kind":"measured","measurement":{"step_times_s":[0.005213176998950075,0.0009526959984214045,0.0008287210002890788,0.0008889410019037314,0.0307746539983782,0.00676706599915633,0.0014375870014191605,0.0011861820021294989,0.02994474099978106,0.009239751001587138,0.03231587399932323,0.003322646996821277,0.0062178810039767995,0.012529799998446833,0.0011316820018691942,0.006602461995498743,0.0011373500019544736,0.0008617900020908564,0.010847239995200653,0.001431848002539482,0.01667598199856002,0.0019598830040195026,0.0010727339977165684,0.01577485199959483,0.006586889001482632,0.0012965970017830841,0.0009553700001561083,0.0028423839976312593,0.0009748579977895133,0.008710996000445448,0.004928132999339141,0.0010910019991570152,0.007771008000418078,0.021244531002594158,0.001595280999026727,0.0007908249972388148,0.0007353630062425509,0.0006930799936526455,0.018398591004370246,0.0010012279963120818,0.0006884230024297722,0.004854113998590037,0.004873703001067042,0.001269806998607237,0.0009262060048058629,0.0006715079944115132,0.007947240002977196,0.01569270100299036,0.001981223998882342,0.0008890909957699478,0.0007157540021580644,0.0006009130011079833,0.013554723998822737,0.0009107329969992861,0.000684267004544381,0.011364247999154031,0.022154252998006996,0.0013881129998480901,0.0006524900018121116,0.0005819139987579547],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326299648},"warmup_steps":7,"warmup_s":0.04605953799909912,"batch_size":8,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.7408075336767179,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[{"phase":"pre_forward","step":67,"allocated":326914048,"max_allocated":326914048,"peak":326914048,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":67,"allocated":326914048,"max_allocated":326918144,"peak":326918144,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":67,"allocated":326914048,"max_allocated":326918144,"peak":326914048,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":67,"allocated":326922240,"max_allocated":326930432,"peak":326930432,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_forward","step":68,"allocated":326922240,"max_allocated":326930432,"peak":326922240,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":68,"allocated":326922240,"max_allocated":326930432,"peak":326926336,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":68,"allocated":326918144,"max_allocated":326930432,"peak":326926336,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":68,"allocated":326926336,"max_allocated":326934528,"peak":326934528,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0}],"notes":["steps are uneven: the mean step takes 3.88x the median (evaluation or logging inside?)"]}}',1);
INSERT INTO "autotune_trial" VALUES(2,1,1,2,1,'{"engine":"eager","plans":[],"level":0,"batch_size":16,"choices":[],"accumulation":0}','finished',0,1,'/home/user/project/.autotune/runs/ended/trial-0001',1.79542590098148036005e+09,1.79542590660751819608e+09,'measured',1.51726000971312132608e+04,326238208,'{"kind":"measured","measurement":{"step_times_s":[0.09109878999879584,0.004439888005435932,0.003811223999946378,0.003286112994828727,0.0008361830041394569,0.0022779650025768206,0.0007655279987375252,0.0023974029973032884,0.000793519000581,0.0005880940007045865,0.0035802299971692264,0.0007118880021153018,0.0018941949965665117,0.0006242380040930584,0.0016849839958013035,0.0019094080053037032,0.002227318997029215,0.0006910270021762699,0.03349807099584723,0.0010620490065775812,0.01360323499829974,0.007070988001942169,0.005805517997941934,0.004389952999190427,0.0008955710000009276,0.0005892659974051639,0.0006525300050270744,0.0005751039934693836,0.018241719000798184,0.0010470160050317645,0.000620611994236242,0.013342028003535233,0.0009933760011335835,0.0005996909967507236,0.0005663720003212802,0.0005512589996214956,0.016891863000637386,0.008220536001317669,0.0007226939997053705,0.0006553639977937564,0.008667981004691683,0.0008037449952098541,0.009537682999507524,0.0009810480041778646,0.0057111169953714125,0.0008939390027080663,0.0005898360032006167,0.0005839779987582006,0.0005535429954761639,0.0005412540049292147,0.0005446499999379739,0.0544271429971559,0.0009431110011064447,0.002984835999086499,0.0030759010041947477,0.006386029999703169,0.0005960359994787723,0.011716200999217108,0.002364503998251166,0.0005925209989072755],"samples_per_step":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326238208},"warmup_steps":6,"warmup_s":0.07713747300294926,"batch_size":16,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.5976928916093855,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":["steps are uneven: the mean step takes 5.75x the median (evaluation or logging inside?)"]}}',1);
INSERT INTO "autotune_trial" VALUES(3,2,0,3,2,'{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[],"accumulation":0}','finished',0,1,'/home/user/project/.autotune/runs/killed/discovery',1.79542599053212285041e+09,1.79542600014604759213e+09,'measured',1.29721886799342496488e+03,326373376,'{"kind":"measured","measurement":{"step_times_s":[0.011160053996718489,0.0025518129987176508,0.00960309099900769,0.0022968430057517253,0.010181931000261102,0.0020539619945338927,0.0066007800051011145,0.002049174996500369,0.006236498004000168,0.0015461079965461977,0.010158937002415769,0.0018310809973627329,0.0067758790028165095,0.014587548001145478,0.002501167000446003,0.005996431995299645,0.0016562610035180114,0.008255087996076327,0.011194115002581384,0.008415085998422,0.015602765997755341,0.006352731004881207,0.002766601995972451,0.010771496999950614,0.007733543003269006,0.002123405000020284,0.001553369002067484,0.0012882739974884316,0.010294027997588273,0.0076845100047648884,0.002252487000077963,0.0066269979943172075,0.0017247930009034462,0.018962720001582056,0.006434732997149695,0.001919262002047617,0.014563092001480982,0.0019195830027456395,0.005455036000057589,0.0015458479974768125,0.02295084599609254,0.001708059004158713,0.009554639000270981,0.0018451919968356378,0.013963199999125209,0.002346587003557943,0.011838272999739274,0.005099517999042291,0.006466619997809175,0.009722539005451836,0.0026862719969358295,0.006097580997447949,0.001792554001440294,0.013922730002377648,0.002301590997376479,0.003278331998444628,0.0015552610057056881,0.010510338994208723,0.00165665200620424,0.016902588999073487],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326373376},"warmup_steps":12,"warmup_s":0.09110908000002382,"batch_size":8,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.6546400982803557,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[{"phase":"pre_forward","step":72,"allocated":326975488,"max_allocated":326975488,"peak":326975488,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":72,"allocated":326975488,"max_allocated":326983680,"peak":326983680,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":72,"allocated":326967296,"max_allocated":326983680,"peak":326979584,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":72,"allocated":326975488,"max_allocated":326995968,"peak":326995968,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_forward","step":73,"allocated":326975488,"max_allocated":326995968,"peak":326979584,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":73,"allocated":326975488,"max_allocated":326995968,"peak":326983680,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":73,"allocated":326971392,"max_allocated":326995968,"peak":326983680,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":73,"allocated":326983680,"max_allocated":326995968,"peak":326995968,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0}],"notes":["step times had not settled after 12 warm-up steps"]}}',1);
INSERT INTO "autotune_trial" VALUES(4,2,1,4,2,'{"engine":"eager","plans":[],"level":0,"batch_size":16,"choices":[],"accumulation":0}','finished',0,1,'/home/user/project/.autotune/runs/killed/trial-0001',1.79542600092101812363e+09,1.79542600404061770437e+09,'measured',1.63499126811403293684e+04,326250496,'{"kind":"measured","measurement":{"step_times_s":[0.001778483005182352,0.0009519839950371534,0.005058828006440308,0.005859587996383198,0.002442750002956018,0.00563167899963446,0.001703531997918617,0.0009180839988403022,0.0008546200042474084,0.005488525996042881,0.0009087110011023469,0.0008048059971770272,0.0007315570037462749,0.005681192997144535,0.0010083180022775196,0.0008341700013261288,0.005003464997571427,0.0019696980016306043,0.0014379360000020824,0.0023031730015645735,0.00120337800035486,0.005788413000118453,0.0017526339943287894,0.005349159000616055,0.0015899830032140017,0.0008973939984571189,0.0007613010020577349,0.009520888997940347,0.0012805930018657818,0.0009412689978489652,0.0008617200001026504,0.012569459999212995,0.001005213001917582,0.0006891250013723038,0.0006320389948086813,0.0005650290040648542,0.007175913997343741,0.001335724999080412,0.0055406640021828935,0.0008243150005000643,0.0007656480011064559,0.0006168069958221167,0.005717826999898534,0.0006930000017746352,0.000564207999559585,0.0006097160003264435,0.0005532319992198609,0.005524190004507545,0.0007021929995971732,0.0005727009993279353,0.0005810939983348362,0.0005606229969998822,0.005042213000706397,0.0006844470044597983,0.0005749549964093603,0.0005555050011025742,0.000552691999473609,0.0005601320008281618,0.005596146002062596,0.0012851599967689253],"samples_per_step":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326250496},"warmup_steps":12,"warmup_s":0.058854121998592746,"batch_size":16,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.5380622885869148,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":["step times had not settled after 12 warm-up steps","steps are uneven: the mean step takes 2.39x the median (evaluation or logging inside?)"]}}',1);
INSERT INTO "autotune_trial" VALUES(5,2,2,5,2,'{"engine":"aot","plans":[{"cluster_id":"addmm+","strategy":1,"count":-1}],"level":0,"batch_size":16,"choices":[],"accumulation":0}','running',0,0,'/home/user/project/.autotune/runs/killed/trial-0002',1.79542600525696516037e+09,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "autotune_trial" VALUES(6,2,3,6,2,'{"engine":"aot","plans":[{"cluster_id":"gelu+","strategy":1,"count":-1}],"level":0,"batch_size":16,"choices":[],"accumulation":0}','running',0,0,'/home/user/project/.autotune/runs/killed/trial-0002',1.79542600527718520164e+09,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE studies (
	study_id INTEGER NOT NULL, 
	study_name VARCHAR(512) NOT NULL, 
	PRIMARY KEY (study_id)
);
INSERT INTO "studies" VALUES(1,'ended');
INSERT INTO "studies" VALUES(2,'killed');
CREATE TABLE study_directions (
	study_direction_id INTEGER NOT NULL, 
	direction VARCHAR(8) NOT NULL, 
	study_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	PRIMARY KEY (study_direction_id), 
	UNIQUE (study_id, objective), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_directions" VALUES(1,'MAXIMIZE',1,0);
INSERT INTO "study_directions" VALUES(2,'MINIMIZE',1,1);
INSERT INTO "study_directions" VALUES(3,'MAXIMIZE',2,0);
INSERT INTO "study_directions" VALUES(4,'MINIMIZE',2,1);
CREATE TABLE study_system_attributes (
	study_system_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_system_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_system_attributes" VALUES(1,1,'study:metric_names','["samples_per_s", "peak_bytes"]');
INSERT INTO "study_system_attributes" VALUES(2,2,'study:metric_names','["samples_per_s", "peak_bytes"]');
CREATE TABLE study_user_attributes (
	study_user_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_user_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
CREATE TABLE trial_heartbeats (
	trial_heartbeat_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	heartbeat DATETIME NOT NULL, 
	PRIMARY KEY (trial_heartbeat_id), 
	UNIQUE (trial_id), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_intermediate_values (
	trial_intermediate_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	intermediate_value FLOAT, 
	intermediate_value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_intermediate_value_id), 
	UNIQUE (trial_id, step), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_params (
	param_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	param_name VARCHAR(512), 
	param_value FLOAT, 
	distribution_json TEXT, 
	PRIMARY KEY (param_id), 
	UNIQUE (trial_id, param_name), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_params" VALUES(1,1,'batch_size',8.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 8, "high": 16}}');
INSERT INTO "trial_params" VALUES(2,1,'addmm+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(3,1,'gelu+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(4,2,'batch_size',16.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 8, "high": 16}}');
INSERT INTO "trial_params" VALUES(5,2,'addmm+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(6,2,'gelu+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(7,3,'batch_size',8.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 8, "high": 16}}');
INSERT INTO "trial_params" VALUES(8,3,'addmm+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(9,3,'gelu+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(10,4,'batch_size',16.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 8, "high": 16}}');
INSERT INTO "trial_params" VALUES(11,4,'addmm+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(12,4,'gelu+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(13,5,'batch_size',16.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 8, "high": 16}}');
INSERT INTO "trial_params" VALUES(14,5,'addmm+',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(15,5,'gelu+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(16,6,'batch_size',16.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 8, "high": 16}}');
INSERT INTO "trial_params" VALUES(17,6,'addmm+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(18,6,'gelu+',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
CREATE TABLE trial_system_attributes (
	trial_system_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_system_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_system_attributes" VALUES(1,1,'constraints:memory','-0.9837612210710505');
INSERT INTO "trial_system_attributes" VALUES(2,2,'constraints:memory','-0.9837642787224562');
INSERT INTO "trial_system_attributes" VALUES(3,3,'constraints:memory','-0.9848847973472848');
INSERT INTO "trial_system_attributes" VALUES(4,4,'constraints:memory','-0.9848904882407172');
CREATE TABLE trial_user_attributes (
	trial_user_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_user_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_user_attributes" VALUES(1,1,'origin','"baseline"');
INSERT INTO "trial_user_attributes" VALUES(2,1,'configuration','"batch 8, no plans"');
INSERT INTO "trial_user_attributes" VALUES(3,1,'outcome','"measured"');
INSERT INTO "trial_user_attributes" VALUES(4,2,'origin','"sampler"');
INSERT INTO "trial_user_attributes" VALUES(5,2,'configuration','"batch 16, no plans"');
INSERT INTO "trial_user_attributes" VALUES(6,2,'outcome','"measured"');
INSERT INTO "trial_user_attributes" VALUES(7,2,'device','"AMD EPYC"');
INSERT INTO "trial_user_attributes" VALUES(8,3,'origin','"baseline"');
INSERT INTO "trial_user_attributes" VALUES(9,3,'configuration','"batch 8, no plans"');
INSERT INTO "trial_user_attributes" VALUES(10,3,'outcome','"measured"');
INSERT INTO "trial_user_attributes" VALUES(11,4,'origin','"sampler"');
INSERT INTO "trial_user_attributes" VALUES(12,4,'configuration','"batch 16, no plans"');
INSERT INTO "trial_user_attributes" VALUES(13,4,'outcome','"measured"');
INSERT INTO "trial_user_attributes" VALUES(14,4,'device','"AMD EPYC"');
INSERT INTO "trial_user_attributes" VALUES(15,5,'origin','"sampler"');
INSERT INTO "trial_user_attributes" VALUES(16,5,'configuration','"batch 16, addmm+:1:-1"');
INSERT INTO "trial_user_attributes" VALUES(17,6,'origin','"sampler"');
INSERT INTO "trial_user_attributes" VALUES(18,6,'configuration','"batch 16, gelu+:1:-1"');
CREATE TABLE trial_values (
	trial_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	value FLOAT, 
	value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_value_id), 
	UNIQUE (trial_id, objective), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_values" VALUES(1,1,0,5.27553457573745527035e+03,'FINITE');
INSERT INTO "trial_values" VALUES(2,1,1,326299648.0,'FINITE');
INSERT INTO "trial_values" VALUES(3,2,0,1.51726000971312132608e+04,'FINITE');
INSERT INTO "trial_values" VALUES(4,2,1,326238208.0,'FINITE');
INSERT INTO "trial_values" VALUES(5,3,0,1.29721886799342496488e+03,'FINITE');
INSERT INTO "trial_values" VALUES(6,3,1,326373376.0,'FINITE');
INSERT INTO "trial_values" VALUES(7,4,0,1.63499126811403293684e+04,'FINITE');
INSERT INTO "trial_values" VALUES(8,4,1,326250496.0,'FINITE');
CREATE TABLE trials (
	trial_id INTEGER NOT NULL, 
	number INTEGER, 
	study_id INTEGER, 
	state VARCHAR(8) NOT NULL, 
	datetime_start DATETIME, 
	datetime_complete DATETIME, 
	PRIMARY KEY (trial_id), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "trials" VALUES(1,0,1,'COMPLETE','2026-11-23 09:24:57.042087','2026-11-23 09:24:57.042087');
INSERT INTO "trials" VALUES(2,1,1,'COMPLETE','2026-11-23 09:25:00.768390','2026-11-23 09:25:07.039489');
INSERT INTO "trials" VALUES(3,0,2,'COMPLETE','2026-11-23 09:26:39.949840','2026-11-23 09:26:39.949840');
INSERT INTO "trials" VALUES(4,1,2,'COMPLETE','2026-11-23 09:26:40.901746','2026-11-23 09:26:44.434206');
INSERT INTO "trials" VALUES(5,2,2,'RUNNING','2026-11-23 09:26:44.908405',NULL);
INSERT INTO "trials" VALUES(6,3,2,'RUNNING','2026-11-23 09:26:45.086608',NULL);
CREATE TABLE version_info (
	version_info_id INTEGER NOT NULL, 
	schema_version INTEGER, 
	library_version VARCHAR(256), 
	PRIMARY KEY (version_info_id), 
	CHECK (version_info_id=1)
);
INSERT INTO "version_info" VALUES(1,12,'5.0.0');
CREATE INDEX ix_autotune_repeat_study_id ON autotune_repeat (study_id);
CREATE INDEX ix_autotune_bundle_study_id ON autotune_bundle (study_id);
CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);
CREATE INDEX ix_trials_study_id ON trials (study_id);
COMMIT;
